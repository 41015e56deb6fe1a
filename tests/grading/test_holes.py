"""Answers that once passed although wrong, and honest answers to the same problems.

`tests/holes` has a file for each. The comments at its head name the problem, the device and the expected status.
"""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from evaluator.catalog import find_problem
from evaluator.records import DeviceKind, Problem, SizeName, Status
from tests.grading.judged import context_of, judged_by_values

pytestmark = pytest.mark.slow
FOLDER = Path(__file__).parents[1] / "holes"
PROBLEMS = FOLDER / "problems"
_LINE = re.compile(r"# (\w+): (.+)")


class Submission(NamedTuple):
    """A submission with the lines of its head."""

    path: Path
    problem: str
    device: DeviceKind
    expected: Status


def read(path: Path) -> Submission:
    """Return the submission of a file."""
    head = dict(_LINE.match(line).groups() for line in path.read_text().splitlines() if _LINE.match(line))
    return Submission(path, head["problem"], DeviceKind(head["device"]), Status(head["expected"]))


def problem_of(name: str) -> Problem:
    """Return a problem of `tests/holes`, or a shipped one."""
    return find_problem(str(PROBLEMS / name) if (PROBLEMS / name).is_dir() else name)


ROWS = sorted(
    map(read, (path for kind in ("wrong", "honest") for path in (FOLDER / kind).glob("*.py"))),
    key=lambda submission: (submission.problem, submission.device, submission.path.name),
)


FOUND_BY_DRAW = "quarter_of_the_tokens"
"""A mean over a quarter of the tokens behind a look at the values: two of 154 grades called it correct."""


@pytest.fixture(scope="module")
def context(request):
    """Yield the context of a problem's rows: `request.param` is the problem's name and the device."""
    name, device = request.param
    with context_of(problem_of(name), SizeName.SMALL, device) as context:
        yield context


@pytest.mark.parametrize(
    ("context", "submission"),
    [pytest.param((row.problem, row.device), row, id=f"{row.path.parent.name}-{row.path.stem}") for row in ROWS],
    indirect=["context"],
)
def test_wrong_answers_are_refused_and_honest_ones_are_correct(context, submission):
    outcome = judged_by_values(context, submission.path.read_text())
    if outcome.status is Status.CORRECT and submission.path.stem == FOUND_BY_DRAW:
        outcome = judged_by_values(context, submission.path.read_text())
    assert outcome.status is submission.expected, outcome.reason


def test_each_wrong_answer_has_an_honest_one_to_the_same_problem():
    kinds = {kind: {row.problem for row in ROWS if row.path.parent.name == kind} for kind in ("wrong", "honest")}
    assert kinds["wrong"] <= kinds["honest"]
    assert {path.name for path in PROBLEMS.iterdir() if path.is_dir()} <= kinds["honest"]
