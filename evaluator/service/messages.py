"""Documents of the service's HTTP interface, shared by server, client and OpenAPI description."""

from enum import StrEnum
from typing import Annotated

import msgspec

from evaluator.records import Record, Status

MOST_BODY_BYTES = 8 << 20
"""Limit of a request's body: an answer of 4 MiB, escaped in JSON."""
MOST_KEY = 200
MOST_NAMED = 100
"""Largest number of grades that a request names."""
MOST_PAGE = 500
"""Largest number of grades in a page of a list."""
LEAST_FEEDBACK, MOST_FEEDBACK = 600, 20_000
"""Shortest and longest limit of feedback, in characters."""
MOST_WAIT_S = 60.0
"""Longest time that a client may ask the server to wait for the end of a grade."""

MOST_PROBLEM = 256 << 10
"""Limit of the characters of a problem as text: the service parses the text, which delays other requests."""

ShortName = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class GradeState(StrEnum):
    """State of a grade in the service. The last three are final."""

    QUEUED = "queued"
    GRADING = "grading"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether the state changes no more."""
        return self in (GradeState.FINISHED, GradeState.FAILED, GradeState.CANCELLED)


class TextProblem(Record, frozen=True):
    """A problem as text in KernelBench's form. `name` names the problem on cards."""

    name: ShortName
    source: Annotated[str, msgspec.Meta(max_length=MOST_PROBLEM)]


class GradeOrder(Record, frozen=True):
    """Request for a grade: the problem by name or as text, and a submission as Python text or a model's answer.

    A `source` of null is graded as an empty answer. `name` names the submission on the card.
    """

    problem: ShortName | TextProblem
    source: str | None
    name: ShortName = "candidate"


class Grade(Record, frozen=True):
    """A grade of the service. `key` is the client's idempotency key.

    `verdict` is the status on the card of a finished grade. `reason` tells why a failed grade has no card.
    """

    id: str
    state: GradeState
    problem: str
    name: str
    submitted_at: str
    key: str | None = None
    finished_at: str | None = None
    verdict: Status | None = None
    reason: str | None = None


class GradePage(Record, frozen=True):
    """Some grades of the client, latest first. The next page is that `before` the grade `next`; null after the last."""

    grades: list[Grade]
    next: str | None


class ListedProblem(Record, frozen=True):
    """A problem of the service. `sha256` changes with its content."""

    name: str
    title: str
    level: int
    sha256: str


class ProblemList(Record, frozen=True):
    """The problems of the service, by level and name."""

    problems: list[ListedProblem]


class Refusal(Record, frozen=True):
    """Body of every response with an error: the error and its remedy."""

    error: str
    hint: str = ""


class RequestRefused(Exception):
    """A request is refused, with an HTTP status and the body of the response."""

    def __init__(self, status: int, error: str, hint: str = "") -> None:
        super().__init__(error)
        self.status = status
        self.refusal = Refusal(error, hint)


def too_large(most_bytes: int = MOST_BODY_BYTES) -> RequestRefused:
    """Return the refusal of a body with more than `most_bytes`."""
    hint = "a submission has at most 4 MiB of text"
    return RequestRefused(413, f"the body is larger than {most_bytes >> 20} MiB", hint)
