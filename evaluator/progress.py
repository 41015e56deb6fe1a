"""The stages of a grade: who is told of each, and how long each took."""

import contextlib
import datetime
import time
from collections.abc import Iterator
from typing import Protocol

from evaluator.deadline import Deadline
from evaluator.records import Record


class Progress(Protocol):
    """What a pipeline tells about its way."""

    def stage(self, name: str, detail: str = "") -> None:
        """Say that the stage `name` begins, or goes on with another `detail`."""


class Silent:
    """Says nothing."""

    def stage(self, name: str, detail: str = "") -> None:
        """Say nothing."""


class Lap(Record, frozen=True):
    """What a stopwatch showed when one process was done with its part of a grade."""

    started_at: str
    stages_s: dict[str, float]
    wall_s: float


class Stopwatch:
    """Times the stages of one grade."""

    def __init__(self, progress: Progress, before: "Lap | None" = None, deadline: Deadline | None = None) -> None:
        """Start now, or go on after what was done `before`; tell `progress` of each stage.

        No stage begins when the `deadline` of the grade has come.
        """
        self.deadline = Deadline() if deadline is None else deadline
        self.at = "start"
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        self.started_at = now if before is None else before.started_at
        self.stages_s: dict[str, float] = {} if before is None else dict(before.stages_s)
        self._progress = progress
        self._started_s = time.monotonic() - (0.0 if before is None else before.wall_s)

    @property
    def wall_s(self) -> float:
        """Say how long it has been running, without the time between two processes."""
        return time.monotonic() - self._started_s

    def lap(self) -> "Lap":
        """Stop here, for another to go on."""
        return Lap(self.started_at, self.stages_s, self.wall_s)

    @contextlib.contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[None]:
        """Time a stage. `at` names the last one that began. Raises DeadlineReached."""
        self.deadline.check()
        self.at = name
        self._progress.stage(name, detail)
        started_s = time.monotonic()
        try:
            yield
        finally:
            self.stages_s[name] = self.stages_s.get(name, 0.0) + time.monotonic() - started_s
