"""Request of a grade, and the intermediate result of a grade that waits for a GPU."""

from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.progress import Lap
from evaluator.records import Finding, Outcome, Record, Scorecard, Sha256
from evaluator.submission.read import Submission


class Unread(Record, frozen=True):
    """A submission that could not be read: origin and reason. The scorecard reports the reason."""

    name: str
    origin: str
    finding: Finding


class GradeRequest(Record, frozen=True):
    """Submission, problem and options of a grade. A replay uses the seeds of the card `replay`."""

    submission: Submission | Unread
    terms: GradeTerms
    replay: Scorecard | None = None


class Library(Record, frozen=True):
    """A built library under its cache key, for a machine without access to the cache."""

    key: Sha256
    content: bytes
    log: str
    wall_s: float


class Begun(Record, frozen=True):
    """A grade with a built submission, to be finished on a GPU. `libraries` are included for another machine.

    `submission_s` is the part of the time that was spent in builds and code of the submission.
    """

    outcome: Outcome
    lap: Lap
    libraries: list[Library] = []
    submission_s: float = 0.0
