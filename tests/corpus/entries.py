"""Read the corpus: CUDA submissions whose outcome is known, to hold the emulated device against a real GPU."""

import tomllib
from pathlib import Path

import msgspec

from evaluator.catalog import find_problem
from evaluator.records import Problem, Status

CORPUS = Path(__file__).parent
SUBMISSION_FILE = "submission.py"
EXPECT_FILE = "expect.toml"
UNDEFINED = "undefined"


class Expectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An expect.toml.

    `status` is the verdict of the emulated device on a good day; `gpu` what a real one makes of it. Where that is
    `undefined`, a race or a stray access may go unpunished. A `blind_spot` says why the emulated device may pass a
    submission that is broken.
    """

    construct: str
    status: Status
    gpu: str
    problem: str = ""
    reference: str = ""
    code: str = ""
    twin: str = ""
    blind_spot: str = ""


class Entry(msgspec.Struct, frozen=True):
    """A submission of the corpus and what is expected of it."""

    name: str
    expected: Expectation

    @property
    def folder(self) -> Path:
        """Give the entry's folder."""
        return CORPUS / self.name

    @property
    def submission(self) -> Path:
        """Give the path of what is graded."""
        return self.folder / SUBMISSION_FILE

    @property
    def source(self) -> str:
        """Read the text of what is graded."""
        return self.submission.read_text()

    def problem(self) -> Problem:
        """Read the problem: a shipped one by name, or the folder that holds `reference` (often a neighbour's)."""
        if self.expected.problem:
            return find_problem(self.expected.problem)
        return find_problem(str((self.folder / self.expected.reference).resolve().parent))


def entries() -> list[Entry]:
    """Read every entry, by name.

    Raises:
        msgspec.ValidationError: an expect.toml has an unknown key or value, or lacks one.
    """
    files = sorted(CORPUS.glob(f"*/{EXPECT_FILE}"))
    return [Entry(path.parent.name, _expectation(path)) for path in files]


def _expectation(path: Path) -> Expectation:
    return msgspec.convert(tomllib.loads(path.read_text()), Expectation)
