"""Interface of the grader behind the service: the part of `Grader` that the service uses."""

from concurrent.futures import Future
from typing import Protocol

from evaluator.api.scorecard import Scorecard
from evaluator.batch.runs.problems import ProblemText
from evaluator.errors import UsageError
from evaluator.service.documents.messages import GradeOrder, TextProblem


class Grading(Protocol):
    """Grader behind the service. All methods are thread-safe."""

    @property
    def at_once(self) -> int:
        """Number of submissions to hand in ahead."""

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the workers."""

    def refusal_of(self, problem: str | ProblemText) -> UsageError | None:
        """Return the error of a problem that cannot be graded, as far as known without running code."""

    def submit(self, problem: str | ProblemText, source: str | None, *, name: str) -> Future[Scorecard]:
        """Submit a submission."""

    def infra_card(self, problem: str | ProblemText, source: str | None, *, name: str, reason: str) -> Scorecard:
        """Return a card of status `infra_error` without a grade."""


def problem_of(order: GradeOrder) -> str | ProblemText:
    """Return the problem of an order as the library names problems."""
    match order.problem:
        case TextProblem(name=name, source=source):
            return ProblemText(source, name)
        case str() as name:
            return name
