"""Items of a batch: a task for each submission, files known from an earlier session, refused inputs, shards."""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.files.card_files import card_place
from evaluator.grade_options import GradeOptions
from evaluator.grading.request import Unread
from evaluator.records import LevelNumber, Problem, Record, Scorecard, Sha256
from evaluator.submission.read import Submission
from evaluator.text import one_line

_MOST_CAUSES = 100
_OTHER_CAUSE = ""
Stamp = tuple[int, int]
"""Size in bytes and modification time in nanoseconds of a file. While both stay, the content counts as unchanged."""


class Task(NamedTuple):
    """One submission to grade. `name` is unique within the problem. `stamp` belongs to the submission's file.

    `options` are those of this grade alone; None means the options of all grades of the pool.
    """

    problem: Problem
    name: str
    submission: Submission | Unread
    stamp: Stamp | None = None
    options: GradeOptions | None = None

    @property
    def context(self) -> str:
        """Key of tasks whose grades share a worker's context: one problem, and the same options."""
        own = "" if self.options is None else f" {self.options.for_worker(None)}"
        return f"{self.problem.sha256}{own}"

    @property
    def card(self) -> str:
        """Path of the scorecard below the folder of cards: `relu/mine.json`."""
        return str(card_place(self.problem.name, self.name))

    @property
    def key(self) -> str | None:
        """Hash key of problem and code: tasks with equal keys are graded once. None without code."""
        return self.planned.key

    @property
    def planned(self) -> "Planned":
        """The task's line of the plan."""
        return Planned(
            card=self.card,
            problem=self.problem.name,
            level=self.problem.level,
            name=self.name,
            origin=self.submission.origin,
            problem_sha256=self.problem.sha256,
            submission_sha256=self.submission.sha256 if isinstance(self.submission, Submission) else None,
            stamp=self.stamp,
        )


def equality_key(problem: str, problem_sha256: str, submission_sha256: str | None) -> str | None:
    """Return the key of a problem and a submission's code; None without code.

    The name of the problem is a part, because two problems of one content have different cards.
    """
    return f"{problem}:{problem_sha256}:{submission_sha256}" if submission_sha256 else None


def renamed(card: Scorecard, name: str, origin: str) -> Scorecard:
    """Return the card of a submission with equal code, under its own name. The signature no longer holds."""
    return replace(card, submission=replace(card.submission, name=name, origin=origin))


class Planned(Record, frozen=True):
    """A submission of the plan, without the text. `card` is the path below the folder of cards."""

    card: str
    problem: str
    level: LevelNumber
    name: str
    origin: str
    problem_sha256: Sha256
    submission_sha256: Sha256 | None
    stamp: Stamp | None = None

    @property
    def key(self) -> str | None:
        """Same as `Task.key`."""
        return equality_key(self.problem, self.problem_sha256, self.submission_sha256)


class UnchangedFile(NamedTuple):
    """A file that was read in an earlier session and is unchanged. `read` reads the file again, if needed."""

    planned: Planned
    read: "Callable[[], Task | Refused]"


class Refused(Record, frozen=True):
    """Ungradable input, and the reason. A refused input gets no card, and a line in RUN/refused.jsonl.

    `problem` and `name` come from the input, and may be empty. Only a known problem has a `level`. `sha256` is the hash
    of a refused line or text: the same place in another stream may hold other content.
    """

    origin: str
    reason: str
    problem: str = ""
    name: str = ""
    level: LevelNumber | None = None
    sha256: Sha256 | None = None

    @property
    def cause(self) -> str:
        """The reason without the name of the input: equal for inputs refused for the same cause."""
        problem_text = repr(one_line(self.problem, 80))
        input_name = next(
            (name for name in (self.origin, f"{self.problem}/{self.name}", problem_text) if name in self.reason), None
        )
        return self.reason if input_name is None else self.reason.replace(input_name, "…", 1)


class RefusedByCause:
    """Refused inputs by cause: the first of each cause, and the number of all."""

    def __init__(self) -> None:
        self._causes: dict[str, tuple[Refused, int]] = {}

    def add(self, refused: Refused) -> bool:
        """Count an input. Return whether the input is the first of its cause."""
        # A stream without end may have causes without end.
        cause = refused.cause if len(self._causes) < _MOST_CAUSES else _OTHER_CAUSE
        first, count = self._causes.get(cause, (refused, 0))
        self._causes[cause] = first, count + 1
        return count == 0

    @property
    def lines(self) -> list[str]:
        """A line for each cause: the reason, the first input, and the number of inputs."""
        return [
            f"{first.origin}: {first.reason}" if count == 1 else f"{count} inputs: {first.reason} ({first.origin}, …)"
            for first, count in self._causes.values()
        ]

    @property
    def further(self) -> list[str]:
        """A line for each cause with several inputs: how many more there are."""
        return [f"{count - 1} more like {first.origin}" for first, count in self._causes.values() if count > 1]


class Shard(NamedTuple):
    """Part `number`, counted from 1, `of` all parts of a batch. Only an item's content decides about its part."""

    number: int
    of: int

    def holds(self, item: Task | UnchangedFile | Refused) -> bool:
        """Return whether `item` belongs to the part. Equal submissions belong to the same part."""
        identity = item.origin if isinstance(item, Refused) else item.planned.key or item.planned.card
        digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") % self.of == self.number - 1
