"""Records of a run's timeline, and the file in Chrome's trace format, for https://ui.perfetto.dev. Pure.

A *lane* is a slot of the batch: one GPU, or one place for a build or a whole grade. A *turn* is one submission's time
on a lane. All times of a session are seconds since its start, on one monotonic clock.
"""

import datetime
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import msgspec

from evaluator.records import Record
from evaluator.text import one_line

_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e8)]
_Text = Annotated[str, msgspec.Meta(max_length=4096)]
_MICROSECONDS = 1e6

MOST_STAGES = 64
"""Stages kept of one turn; a repeated grade has about 30. The last kept stage lasts to the end of the turn."""
MOST_LANES = 4096


class LaneKind(StrEnum):
    """Work of a lane: whole grades, builds, or checks and timings on a GPU."""

    GPU = "gpu"
    GRADE = "grade"
    BUILD = "build"


class Lane(Record, frozen=True):
    """One slot of the batch. `gpu` is the UUID of the lane's GPU, if any."""

    kind: LaneKind
    gpu: _Text | None = None


class Session(Record, frozen=True, tag="session"):
    """Start of a batch session; the turns after this line belong to the session."""

    started_at: datetime.datetime
    host: _Text
    lanes: Annotated[list[Lane], msgspec.Meta(max_length=MOST_LANES)]


class Turn(Record, frozen=True, tag="turn", forbid_unknown_fields=False):
    """One submission's time on the lane number `lane`. `stages` are names with the times of their starts.

    `is_built` marks the end of a build whose submission then waits for a GPU. Other fields, of earlier versions, are
    ignored.
    """

    lane: Annotated[int, msgspec.Meta(ge=0, lt=MOST_LANES)]
    problem: _Text
    name: _Text
    stages: Annotated[list[tuple[_Text, _Seconds]], msgspec.Meta(min_length=1, max_length=MOST_STAGES)]
    ended_s: _Seconds
    is_built: bool = False

    @property
    def began_s(self) -> float:
        """Start of the turn."""
        return self.stages[0][1]

    @property
    def spans(self) -> Iterator["StageSpan"]:
        """Stages of the turn. No span has a negative length, even for a damaged record."""
        ends = [start for _, start in self.stages[1:]] + [self.ended_s]
        for (name, start), end in zip(self.stages, ends, strict=True):
            yield StageSpan(name, start, max(start, end))


class StageSpan(NamedTuple):
    """One stage of a turn."""

    stage: str
    began_s: float
    ended_s: float


class SessionTimeline(NamedTuple):
    """A session with its turns."""

    session: Session
    turns: Sequence[Turn]

    @property
    def ended_s(self) -> float:
        """End of the last turn."""
        return max((turn.ended_s for turn in self.turns), default=0.0)


class Wait(NamedTuple):
    """Time of one built submission between its build and a GPU."""

    began_s: float
    ended_s: float


def waits(timeline: SessionTimeline) -> list[Wait]:
    """Return how long each built submission waited for a GPU, in the order of the GPU's turns."""
    built: dict[tuple[str, str], deque[float]] = defaultdict(deque)
    gpu_waits = []
    for turn in sorted(timeline.turns, key=lambda turn: (turn.began_s, turn.ended_s)):
        if turn.is_built:
            built[turn.problem, turn.name].append(turn.ended_s)
        elif timeline.session.lanes[turn.lane].kind is LaneKind.GPU and built[turn.problem, turn.name]:
            since_s = built[turn.problem, turn.name].popleft()
            gpu_waits.append(Wait(since_s, max(since_s, turn.began_s)))
    return gpu_waits


def _lane_names(session: Session) -> list[str]:
    """Return the name of each lane: `GPU 0`, `build 3`."""
    numbers: Counter[LaneKind] = Counter()
    names = []
    for lane in session.lanes:
        label = "GPU" if lane.kind is LaneKind.GPU else lane.kind.value
        names.append(f"{label} {numbers[lane.kind]}")
        numbers[lane.kind] += 1
    return names


def trace_bytes(timelines: Sequence[SessionTimeline]) -> bytes:
    """Return the trace: one process for each session, one thread for each lane, one slice for each stage.

    A counter shows how many built submissions wait for a GPU. Sessions are placed by the host's clock.
    """
    first = min((timeline.session.started_at for timeline in timelines), default=None)
    encoder = msgspec.json.Encoder()
    events = [
        encoder.encode(event)
        for number, timeline in enumerate(timelines, start=1)
        for event in _events(
            number, timeline, 0.0 if first is None else (timeline.session.started_at - first).total_seconds()
        )
    ]
    return b'{"displayTimeUnit":"ms","traceEvents":[\n' + b",\n".join(events) + b"\n]}\n"


def _events(process: int, timeline: SessionTimeline, after_s: float) -> Iterator[dict[str, Any]]:
    session = timeline.session
    name = f"{one_line(session.host, 60)}, {session.started_at.isoformat(timespec='seconds')}"
    yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
    for lane, lane_name in enumerate(_lane_names(session)):
        common = {"ph": "M", "pid": process, "tid": lane}
        yield common | {"name": "thread_name", "args": {"name": lane_name}}
        yield common | {"name": "thread_sort_index", "args": {"sort_index": lane}}
    for turn in timeline.turns:
        common = {"ph": "X", "pid": process, "tid": turn.lane}
        submission = one_line(f"{turn.problem}/{turn.name}", 120)
        yield common | {"name": submission} | _slice_times(turn.began_s, turn.ended_s, after_s)
        for span in turn.spans:
            yield common | {"name": one_line(span.stage, 60)} | _slice_times(span.began_s, span.ended_s, after_s)
    changes = [change for wait in waits(timeline) for change in ((wait.began_s, 1), (wait.ended_s, -1))]
    waiting = 0
    for at_s, change in sorted(changes):
        waiting += change
        yield {
            "ph": "C",
            "name": "built, waiting for a GPU",
            "pid": process,
            "ts": round((after_s + at_s) * _MICROSECONDS),
            "args": {"submissions": waiting},
        }


def _slice_times(began_s: float, ended_s: float, after_s: float) -> dict[str, int]:
    began_us = round((after_s + began_s) * _MICROSECONDS)
    return {"ts": began_us, "dur": max(0, round((after_s + ended_s) * _MICROSECONDS) - began_us)}
