"""How long each stage of a grade took, told to the user while it lasts."""

import contextlib
import datetime
import time
from collections.abc import Iterator

from evaluator.report.live import Progress


class Stopwatch:
    """Times the stages of one grade."""

    def __init__(self, progress: Progress) -> None:
        """Start now; tell `progress` of each stage."""
        self.started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        self.stages_s: dict[str, float] = {}
        self._progress = progress
        self._started_s = time.monotonic()

    @property
    def wall_s(self) -> float:
        """Say how long it has been running."""
        return time.monotonic() - self._started_s

    @contextlib.contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[None]:
        """Time a stage."""
        self._progress.stage(name, detail)
        started_s = time.monotonic()
        try:
            yield
        finally:
            self.stages_s[name] = time.monotonic() - started_s
