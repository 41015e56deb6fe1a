"""Timeline of a batch session, RUN/logs/timeline-TIME.json, in Chrome's trace format: for https://ui.perfetto.dev.

A slot of the batch is a thread of the trace: a GPU, or a place for builds or whole grades. A *turn*, one submission's
time on a slot, is a slice with a slice for each stage. Times are microseconds since the start of the session. Events
are appended as they end: the format needs no closing bracket, so a crash leaves a readable file.
"""

import datetime
import os
import platform
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from evaluator.batch.runs.run_folder import RunFolder
from evaluator.batch.workers.messages import GradePart
from evaluator.batch.workers.worker_handle import Slot
from evaluator.files.safe_open import open_to_append
from evaluator.text import one_line

WAITING = "built, waiting for a GPU"
"""Name of the counter of submissions between build and GPU."""
MOST_STAGES = 64
"""Stages kept of one turn; a repeated grade has about 30. The last kept stage lasts to the end of the turn."""
_BUILT = "built"
_LANES = {GradePart.FINISH: "GPU", GradePart.BEGIN: "build", GradePart.ALL: "grade"}


class _Turn(NamedTuple):
    submission: tuple[str, str]
    stages: list[tuple[str, float]]


class Timeline:
    """Writer of one session's timeline; `close` leaves out unfinished turns."""

    def __init__(self, folder: RunFolder, slots: Sequence[Slot], began_s: float) -> None:
        """Start a session at `began_s` of the monotonic clock. Raises OSError if the file cannot be written."""
        started = datetime.datetime.now(datetime.UTC)
        self._began_s = began_s
        self._turns: dict[int, _Turn] = {}
        self._waiting: Counter[tuple[str, str]] = Counter()
        self._parts = [slot.part for slot in slots]
        self._file = open_to_append(folder.logs, f"timeline-{started:%Y%m%dT%H%M%S.%f}-{os.getpid()}.json")
        self._file.write(b"[\n")
        name = f"{one_line(platform.node(), 60)}, {started.isoformat(timespec='seconds')}"
        self._write(ph="M", name="process_name", args={"name": name})
        for lane, part in enumerate(self._parts):
            lane_name = f"{_LANES[part]} {self._parts[:lane].count(part)}"
            self._write(ph="M", name="thread_name", tid=lane, args={"name": lane_name})
            self._write(ph="M", name="thread_sort_index", tid=lane, args={"sort_index": lane})

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def stage(self, lane: int, submission: tuple[str, str], stage: str, at_s: float) -> None:
        """Record that the submission, named by problem and name, enters a stage."""
        turn = self._turns.get(lane)
        if turn is not None and turn.submission != submission:
            self.end(lane, at_s)  # the lane lost its machine, and another lane makes the rest
            turn = None
        if stage == _BUILT:
            self.end(lane, at_s)
            self._count_waiting(submission, 1, at_s)
            return
        if turn is None:
            turn = self._turns[lane] = _Turn(submission, [])
            if self._parts[lane] is GradePart.FINISH and self._waiting[submission]:
                self._count_waiting(submission, -1, at_s)
        if len(turn.stages) < MOST_STAGES and (not turn.stages or turn.stages[-1][0] != stage):
            turn.stages.append((stage, at_s))

    def end(self, lane: int, at_s: float) -> None:
        """Write the lane's turn, if any."""
        if (turn := self._turns.pop(lane, None)) is None:
            return
        self._write_slice("/".join(turn.submission), lane, turn.stages[0][1], at_s)
        ends_s = [since_s for _, since_s in turn.stages[1:]] + [at_s]
        for (stage, since_s), end_s in zip(turn.stages, ends_s, strict=True):
            self._write_slice(stage, lane, since_s, end_s)

    def _count_waiting(self, submission: tuple[str, str], change: int, at_s: float) -> None:
        self._waiting[submission] += change
        self._write(ph="C", name=WAITING, ts=self._us(at_s), args={"submissions": self._waiting.total()})

    def _write_slice(self, name: str, lane: int, since_s: float, end_s: float) -> None:
        self._write(
            ph="X", name=one_line(name, 120), tid=lane, ts=self._us(since_s), dur=round((end_s - since_s) * 1e6)
        )

    def _us(self, at_s: float) -> int:
        return round((at_s - self._began_s) * 1e6)

    def _write(self, **event: Any) -> None:
        self._file.write(msgspec.json.encode({"pid": os.getpid(), **event}) + b",\n")
