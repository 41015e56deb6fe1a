"""A submission of a program, and the submission's task."""

import reprlib
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.batch.runs.inputs import read_text
from evaluator.batch.runs.problems import Problems, ProblemText
from evaluator.batch.runs.tasks import Task
from evaluator.errors import UsageError
from evaluator.grading.request import Unread
from evaluator.submission.read import Submission, read_submission


class Candidate(NamedTuple):
    """A submission to grade: Python text, a model's answer with code, or the `Path` of a file or folder.

    `name` serves the caller only. `problem` is the name of a problem, or a `ProblemText`. A `source` of None
    (a model without an answer) is graded like an empty answer: `build_error`.
    """

    problem: str | ProblemText
    source: str | Path | None
    name: str = "candidate"

    def __repr__(self) -> str:
        return f"Candidate({self.problem!r}, {reprlib.repr(self.source)}, name={reprlib.repr(self.name)})"


def task_for(candidate: Candidate, problems: Problems) -> Task:
    """Return the task of a candidate.

    Raises:
        TypeError: the candidate is no `Candidate`, or a field has another type.
        ProblemNotFound: no problem has the name.
        UsageError: the problem has no such size, or the text is no problem.
    """
    require_candidate(candidate)
    if not isinstance(candidate.problem, str | ProblemText):
        raise TypeError(f"a problem is a name or a ProblemText, not {type(candidate.problem).__name__}")
    name_or_text = candidate.problem
    problem = problems.read(name_or_text) if isinstance(name_or_text, ProblemText) else problems.find(name_or_text)
    if isinstance(problem, str):
        missing = problems.refusal_of(name_or_text) if isinstance(name_or_text, str) else None
        raise missing or UsageError(problem)
    return Task(problem, candidate.name, submission_of(candidate, problems.entry))


def require_candidate(candidate: object) -> None:
    """Raise TypeError unless `candidate` is a `Candidate`."""
    if not isinstance(candidate, Candidate):
        raise TypeError(f"expected a Candidate, not {type(candidate).__name__}: Candidate(problem, source)")


def submission_of(candidate: Candidate, entry: str | None = None) -> Submission | Unread:
    """Read the submission of a candidate. `entry` is the name of its class; None for ModelNew, else Model.

    Raises:
        TypeError: the source is neither text nor path.
        UsageError: the system refuses the file.
    """
    source, name = candidate.source, candidate.name
    if isinstance(source, Path):
        read = read_submission(source, entry=entry)
        return replace(read, name=name) if isinstance(read, Submission) else Unread(name, str(source), read)
    text = "" if source is None else source
    if not isinstance(text, str):
        raise TypeError(f"a submission is text, not {type(text).__name__}: pass the content of the model's answer")
    return read_text(text, name, name, entry)
