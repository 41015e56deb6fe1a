"""The stages of a grade: progress reports, and the duration of each stage."""

import contextlib
import datetime
import time
from collections.abc import Iterator
from typing import Protocol

from evaluator.deadline import Deadline
from evaluator.records import Record


class ProgressReceiver(Protocol):
    """Receiver of a pipeline's progress."""

    def stage(self, name: str, detail: str = "") -> None:
        """Report that the stage `name` begins, or continues with another `detail`."""


class Silent:
    """Progress without output."""

    def stage(self, name: str, detail: str = "") -> None:
        """Do nothing."""


class Lap(Record, frozen=True):
    """Stopwatch readings at the end of one process's part of a grade."""

    started_at: str
    stages_s: dict[str, float]
    wall_s: float


class Stopwatch:
    """Timer for the stages of one grade."""

    def __init__(
        self, progress: ProgressReceiver, before: "Lap | None" = None, deadline: Deadline | None = None
    ) -> None:
        """Start now, or continue after `before`; report each stage to `progress`.

        After the `deadline` of the grade, no stage begins.
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
        """Elapsed time, without the time between two processes."""
        return time.monotonic() - self._started_s

    def lap(self) -> "Lap":
        """Return the readings for another process to continue from."""
        return Lap(self.started_at, self.stages_s, self.wall_s)

    @contextlib.contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[None]:
        """Time a stage. `at` is the name of the latest stage begun. Raises DeadlineReached."""
        self.deadline.check()
        self.at = name
        self._progress.stage(name, detail)
        started_s = time.monotonic()
        try:
            yield
        finally:
            self.stages_s[name] = self.stages_s.get(name, 0.0) + time.monotonic() - started_s
