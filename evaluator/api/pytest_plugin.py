"""Plugin of pytest: the fixture `kernel_grade` grades a submission in a test.

def test_softmax(kernel_grade):
    card = kernel_grade("softmax", Path("kernels/softmax.py"))
    assert card.correct
    assert card.speedup is None or card.speedup > 1

All tests of a session share the workers. A project's own fixture `kernel_options` returns the grades' options:

@pytest.fixture(scope="session")
def kernel_options():
    return {"device": "cuda", "require_own_kernel": 0.5}
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from evaluator.api.grader import Grader
    from evaluator.api.scorecard import Scorecard
    from evaluator.batch.runs.problems import ProblemText


class KernelGrade(Protocol):
    """Type of the fixture `kernel_grade`."""

    def __call__(self, problem: "str | ProblemText", source: str | Path) -> "Scorecard":
        """Grade a submission: a text, or the path of a file or folder."""


@pytest.fixture(scope="session")
def kernel_options() -> dict[str, Any]:
    """Return the options of the session's grades: none, for the defaults of `warpgrade grade`."""
    return {}


@pytest.fixture(scope="session")
def _kernel_grader(kernel_options: dict[str, Any]) -> "Iterator[Grader]":
    # The plugin is loaded in each session of pytest, also in sessions without a grade.
    from evaluator.api.grader import Grader

    with Grader(**kernel_options) as grader:
        yield grader


@pytest.fixture
def kernel_grade(_kernel_grader: "Grader", request: pytest.FixtureRequest) -> KernelGrade:
    """Return a function that grades a submission. A failed test shows the feedback on each incorrect submission.

    A failure of the machine raises InfraError, and is no verdict on the kernel.
    """
    from evaluator.errors import InfraError
    from evaluator.records import Status

    def grade(problem: "str | ProblemText", source: str | Path) -> "Scorecard":
        name = source.stem if isinstance(source, Path) else request.node.name
        card = _kernel_grader.grade(problem, source, name=name)
        if card.status is Status.INFRA_ERROR:
            raise InfraError("the machine failed" if card.reason is None else card.reason.message)
        if not card.correct:
            request.node.add_report_section("call", "kernel_grade", card.feedback())
        return card

    return grade
