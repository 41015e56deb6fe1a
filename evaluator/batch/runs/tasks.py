"""What a batch is made of: one task for each submission, and what was handed in but is none."""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from evaluator.files.file_names import card_place
from evaluator.grading.request import Unread
from evaluator.records import Problem, Record, Sha256
from evaluator.submission.read import Submission

Stamp = tuple[int, int]
"""The size of a file in bytes and its time of change in nanoseconds: while both stay, its content is taken to stay."""


class Task(NamedTuple):
    """One submission to grade. `name` is unique among those of its problem; `stamp` is that of the file it lies in."""

    problem: Problem
    name: str
    submission: Submission | Unread
    stamp: Stamp | None = None

    @property
    def card(self) -> str:
        """Where its scorecard lies below the folder of cards: `relu/mine.json`."""
        return str(card_place(self.problem.name, self.name))

    @property
    def key(self) -> str | None:
        """Say what its content is: tasks with one key are graded once. None where there is no code to grade."""
        match self.submission:
            case Submission(sha256=sha256):
                return f"{self.problem.sha256}:{sha256}"
            case Unread():
                return None

    @property
    def origin(self) -> str:
        """Where it was read."""
        return self.submission.origin

    @property
    def submission_sha256(self) -> str | None:
        """The hash of the code, where there is some."""
        return self.submission.sha256 if isinstance(self.submission, Submission) else None


class Planned(Record, frozen=True):
    """A submission as it was read in, without its text. `card` is its card's place below the folder of cards."""

    card: str
    problem: str
    level: int
    name: str
    origin: str
    problem_sha256: Sha256
    submission_sha256: Sha256 | None
    stamp: Stamp | None = None

    @property
    def key(self) -> str | None:
        """As `Task.key`."""
        return f"{self.problem_sha256}:{self.submission_sha256}" if self.submission_sha256 else None


class Seen(NamedTuple):
    """A file that was read before and has not changed since. `read` reads it again, where that is needed after all."""

    planned: Planned
    read: "Callable[[], Task | Refused]"

    @property
    def card(self) -> str:
        """As `Task.card`."""
        return self.planned.card

    @property
    def key(self) -> str | None:
        """As `Task.key`."""
        return self.planned.key

    @property
    def origin(self) -> str:
        """Where it lies."""
        return self.planned.origin

    @property
    def submission_sha256(self) -> str | None:
        """The hash of the code, where there is some."""
        return self.planned.submission_sha256


class Refused(NamedTuple):
    """Something that was handed in and cannot be graded, and why. It gets no card."""

    origin: str
    reason: str


class Shard(NamedTuple):
    """Part `number`, from 1, `of` so many parts of a batch. What belongs where depends on the content alone."""

    number: int
    of: int

    def holds(self, item: Task | Seen | Refused) -> bool:
        """Say whether `item` belongs to this part; equal submissions always fall into the same one."""
        identity = item.origin if isinstance(item, Refused) else item.key or item.card
        digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") % self.of == self.number - 1
