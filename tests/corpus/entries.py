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


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault: `new` instead of `old`, which occurs once."""

    old: str
    new: str


class Expectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An expect.toml.

    `status` is the verdict of the emulated device on a good day; `gpu` what a real one makes of it. Where that is
    `undefined`, a race or a stray access may go unpunished. A `blind_spot` says why the emulated device may pass a
    submission that is broken. A broken submission is its `twin` with `changes`, and `text` as its docstring.
    """

    construct: str
    status: Status
    gpu: str
    problem: str = ""
    reference: str = ""
    code: str = ""
    twin: str = ""
    text: str = ""
    changes: list[Change] = []
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
    def source(self) -> str:
        """Give the text of what is graded.

        Raises:
            ValueError: the text that a change replaces does not occur exactly once.
        """
        if not self.expected.twin:
            return (self.folder / SUBMISSION_FILE).read_text()
        _, code = (CORPUS / self.expected.twin / SUBMISSION_FILE).read_text().split("\n", 1)
        code = code.replace(f"corpus_{self.expected.twin}", f"corpus_{self.name}")
        for change in self.expected.changes:
            if code.count(change.old) != 1:
                raise ValueError(f"{self.name}: the twin has not exactly one {change.old!r}")
            code = code.replace(change.old, change.new)
        return f'"""{self.expected.text}"""\n{code}'

    def submission(self, folder: Path) -> Path:
        """Give the path of what is graded; a broken submission is written into `folder`, which other files share."""
        if not self.expected.twin:
            return self.folder / SUBMISSION_FILE
        path = folder / f"{self.name}.py"
        path.write_text(self.source)
        return path

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
