"""Read the corpus: CUDA submissions whose outcome is known, to hold the emulated device against a real GPU."""

import re
import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from evaluator.catalog import find_problem
from evaluator.records import Problem, Status

CORPUS = Path(__file__).parent
SUBMISSION_FILE = "submission.py"
KERNEL_FILE = "kernel.cu"
EXPECT_FILE = "expect.toml"
UNDEFINED = "undefined"
_FRAME = '''"""{text}"""

{imports}from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "{declaration};"

CUDA_SOURCE = r"""
{kernel}"""

extension = load_inline(
    name="corpus_{name}",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["{function}"],
)


class ModelNew(nn.Module):
{body}'''
_OF_INPUTS = """\
    def forward(self, {inputs}):
        return extension.{function}({inputs})
"""
_OF_INPUT_AND_WEIGHT = """\
    def __init__(self, hidden_size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden_size))
        self.eps = eps

    def forward(self, x):
        return extension.{function}(x, self.weight, self.eps)
"""
_FUNCTION = re.compile(r"^([\w:<>]+ (\w+)\([^{]*?\)) \{$", re.MULTILINE)
"""The start of a C++ function. The last function of a kernel file is the one that Python calls."""


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault: `new` instead of `old`, which occurs once."""

    old: str
    new: str


class Expectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An expect.toml.

    `status` is the verdict of the emulated device on a good day; `gpu` what a real one makes of it. Where that is
    `undefined`, a race or a stray access may go unpunished. A `blind_spot` says why the emulated device may pass a
    submission that is broken. A broken submission is its `twin` with `changes`, and `text` as its docstring. A correct
    one that is a file `kernel.cu` has a docstring `text` and a model that calls the last function of the file: with
    `inputs`, or `hidden` with an input, a weight and an eps, or with the class's own `body`.
    """

    construct: str
    status: Status
    gpu: str
    problem: str = ""
    reference: str = ""
    code: str = ""
    twin: str = ""
    text: str = ""
    inputs: str = "x"
    model: Literal["plain", "hidden"] = "plain"
    body: str = ""
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
        if (path := self.folder / SUBMISSION_FILE).exists():
            return path.read_text()
        if not self.expected.twin:
            return self._framed((self.folder / KERNEL_FILE).read_text())
        _, code = entry(self.expected.twin).source.split("\n", 1)
        code = code.replace(f"corpus_{self.expected.twin}", f"corpus_{self.name}")
        for change in self.expected.changes:
            if code.count(change.old) != 1:
                raise ValueError(f"{self.name}: the twin has not exactly one {change.old!r}")
            code = code.replace(change.old, change.new)
        return f'"""{self.expected.text}"""\n{code}'

    def submission(self, folder: Path) -> Path:
        """Give the path of what is graded: the entry's own file, or one in `folder`, which other entries share."""
        if (own := self.folder / SUBMISSION_FILE).exists():
            return own
        path = folder / f"{self.name}.py"
        path.write_text(self.source)
        return path

    def _framed(self, kernel: str) -> str:
        declaration, function = _FUNCTION.findall(kernel)[-1]
        body = self.expected.body or {"plain": _OF_INPUTS, "hidden": _OF_INPUT_AND_WEIGHT}[self.expected.model].format(
            function=function, inputs=self.expected.inputs
        )
        return _FRAME.format(
            text=self.expected.text,
            imports="import torch\n" if "torch." in body else "",
            declaration=re.sub(r"\(?\s+", lambda space: space[0].strip() or " ", declaration),
            kernel=kernel,
            name=self.name,
            function=function,
            body=body,
        )

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
    return [entry(path.parent.name) for path in files]


def entry(name: str) -> Entry:
    """Read an entry. Raises like `entries`."""
    return Entry(name, _expectation(CORPUS / name / EXPECT_FILE))


def _expectation(path: Path) -> Expectation:
    return msgspec.convert(tomllib.loads(path.read_text()), Expectation)
