"""What is to be graded and how, and a grade that is begun: built, to be finished where a GPU is."""

from evaluator.judge.setup.terms import Terms
from evaluator.progress import Lap
from evaluator.records import Finding, Outcome, Record, Scorecard, Sha256
from evaluator.submission.read import Submission


class Unread(Record, frozen=True):
    """A submission that could not be made out: why, and where it came from. It still gets a scorecard."""

    name: str
    origin: str
    finding: Finding


class GradeRequest(Record, frozen=True):
    """What is to be graded, and how; with the seeds of `replay`, where that is a card."""

    submission: Submission | Unread
    terms: Terms
    replay: Scorecard | None = None


class Library(Record, frozen=True):
    """What a build made, by its key in the cache, for a machine that does not share that."""

    key: Sha256
    content: bytes
    log: str
    wall_s: float


class Begun(Record, frozen=True):
    """A grade whose submission is built, to be finished where a GPU is; with its `libraries`, if that is elsewhere.

    `submission_s` is how much of the time was the submission's own.
    """

    outcome: Outcome
    lap: Lap
    libraries: list[Library] = []
    submission_s: float = 0.0
