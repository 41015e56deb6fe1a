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


class Row(NamedTuple):
    """A submission with the lines of its head."""

    path: Path
    problem: str
    device: DeviceKind
    expected: Status


def row(path: Path) -> Row:
    """Return the row of a submission."""
    head = dict(_LINE.match(line).groups() for line in path.read_text().splitlines() if _LINE.match(line))
    return Row(path, head["problem"], DeviceKind(head["device"]), Status(head["expected"]))


def problem_of(name: str) -> Problem:
    """Return a problem of `tests/holes`, or a shipped one."""
    return find_problem(str(PROBLEMS / name) if (PROBLEMS / name).is_dir() else name)


ROWS = sorted(
    map(row, (path for kind in ("wrong", "honest") for path in (FOLDER / kind).glob("*.py"))),
    key=lambda each: (each.problem, each.device, each.path.name),
)


@pytest.fixture(scope="module")
def context(grader, request):
    """Yield the context of a problem's rows: `request.param` is the problem's name and the device."""
    name, device = request.param
    with context_of(grader, problem_of(name), SizeName.SMALL, device) as made:
        yield made


@pytest.mark.parametrize(
    ("context", "given"),
    [pytest.param((each.problem, each.device), each, id=f"{each.path.parent.name}-{each.path.stem}") for each in ROWS],
    indirect=["context"],
)
def test_wrong_answers_are_refused_and_honest_ones_are_correct(context, given):
    outcome = judged_by_values(context, given.path.read_text())
    assert outcome.status is given.expected, outcome.reason


def test_each_wrong_answer_has_an_honest_one_to_the_same_problem():
    kinds = {kind: {each.problem for each in ROWS if each.path.parent.name == kind} for kind in ("wrong", "honest")}
    assert kinds["wrong"] <= kinds["honest"]
    assert {path.name for path in PROBLEMS.iterdir() if path.is_dir()} <= kinds["honest"]
