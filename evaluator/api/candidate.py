"""A submission of a program, and the submission's task."""

from typing import NamedTuple

from evaluator.batch.runs.inputs import Problems, ProblemText, from_text
from evaluator.batch.runs.tasks import Refused, Task
from evaluator.errors import UsageError


class Candidate(NamedTuple):
    """A submission to grade: Python text, or a model's answer with code. `name` serves the caller only.

    `problem` is the name of a problem, or a `ProblemText`. A `source` of None (a model without an answer) is graded
    like an empty answer: `build_error`.
    """

    problem: str | ProblemText
    source: str | None
    name: str = "candidate"


def task_for(candidate: Candidate, problems: Problems) -> Task:
    """Return the task of a candidate.

    Raises:
        TypeError: the candidate is no `Candidate`, the problem neither name nor `ProblemText`, or the source no text.
        UsageError: the problem does not exist, or the text is no problem.
    """
    if not isinstance(candidate, Candidate):
        raise TypeError(f"expected a Candidate, not {type(candidate).__name__}: Candidate(problem, source)")
    if not isinstance(candidate.problem, str | ProblemText):
        raise TypeError(f"a problem is a name or a ProblemText, not {type(candidate.problem).__name__}")
    source = "" if candidate.source is None else candidate.source
    if not isinstance(source, str):
        raise TypeError(f"a submission is text, not {type(source).__name__}: pass the content of the model's answer")
    wanted = candidate.problem
    problem = problems.read(wanted) if isinstance(wanted, ProblemText) else problems.find(wanted)
    task = from_text(source, candidate.name, candidate.name, problem)
    if isinstance(task, Refused):
        raise UsageError(task.reason)
    return task
