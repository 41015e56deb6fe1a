"""Records of a run's timeline, and the use of lanes computed from the records. Pure.

A *lane* is a slot of the batch: one GPU, or one place for a build or a whole grade. A *turn* is one submission's time
on a lane. All times of a session are seconds since its start, on one monotonic clock.
"""

import datetime
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, NamedTuple

import msgspec

from evaluator.records import Record
from evaluator.spans import SpanSums

_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e8)]
_Text = Annotated[str, msgspec.Meta(max_length=4096)]

MOST_STAGES = 64
"""Stages kept of one turn; a repeated grade has about 30. The last kept stage lasts to the end of the turn."""
MOST_LANES = 4096


class LaneKind(StrEnum):
    """Work of a lane: whole grades, builds, or checks and timings on a GPU."""

    GPU = "gpu"
    GRADE = "grade"
    BUILD = "build"


class Activity(StrEnum):
    """Group of stages, with one colour on the page."""

    START = "start"
    READ = "read"
    BUILD = "build"
    DEVICE = "device"
    CHECK = "check"
    TIME = "time"
    OTHER = "other"


MEANINGS = {
    Activity.START: "worker starts, or pauses before another attempt",
    Activity.READ: "judge reads and prepares the problem",
    Activity.BUILD: "lint and build",
    Activity.DEVICE: "waits for the GPU's lease, sets the problem up",
    Activity.CHECK: "checked calls and their comparisons",
    Activity.TIME: "timed calls and their comparisons",
    Activity.OTHER: "roofline and profile",
}
_ACTIVITIES = {
    "start": Activity.START,
    "again": Activity.START,
    "read": Activity.READ,
    "prepare": Activity.READ,
    "lint": Activity.BUILD,
    "build": Activity.BUILD,
    "device": Activity.DEVICE,
    "check": Activity.CHECK,
    "time": Activity.TIME,
}


class Lane(Record, frozen=True):
    """One slot of the batch. `gpu` is the UUID of the lane's GPU, if any."""

    kind: LaneKind
    gpu: _Text | None = None


class Session(Record, frozen=True, tag="session"):
    """Start of a batch session; the turns after this line belong to the session."""

    started_at: datetime.datetime
    host: _Text
    lanes: Annotated[list[Lane], msgspec.Meta(max_length=MOST_LANES)]


class Turn(Record, frozen=True, tag="turn"):
    """One submission's time on the lane number `lane`. `stages` are names with the times of their starts.

    `is_built` marks the end of a build whose submission then waits for a GPU. `sums` divide the stages of the turn's
    last attempt; runs of earlier versions have none.
    """

    lane: Annotated[int, msgspec.Meta(ge=0, lt=MOST_LANES)]
    problem: _Text
    name: _Text
    stages: Annotated[list[tuple[_Text, _Seconds]], msgspec.Meta(min_length=1, max_length=MOST_STAGES)]
    ended_s: _Seconds
    is_built: bool = False
    sums: SpanSums = []

    @property
    def began_s(self) -> float:
        """Start of the turn."""
        return self.stages[0][1]

    @property
    def spans(self) -> Iterator["Span"]:
        """Stages with their activities. No span has a negative length, even for a damaged record."""
        ends = [start for _, start in self.stages[1:]] + [self.ended_s]
        for (name, start), end in zip(self.stages, ends, strict=True):
            yield Span(name, _ACTIVITIES.get(name, Activity.OTHER), start, max(start, end))


class Span(NamedTuple):
    """One stage of a turn."""

    stage: str
    activity: Activity
    began_s: float
    ended_s: float

    @property
    def seconds(self) -> float:
        """Length of the span."""
        return self.ended_s - self.began_s


class SessionTimeline(NamedTuple):
    """A session with its turns."""

    session: Session
    turns: Sequence[Turn]

    @property
    def ended_s(self) -> float:
        """End of the last turn."""
        return max((turn.ended_s for turn in self.turns), default=0.0)


class Use(NamedTuple):
    """Use of all lanes of a kind: their number, the seconds of each activity, and the length of the session."""

    kind: LaneKind
    lanes: int
    seconds: dict[Activity, float]
    session_s: float

    @property
    def busy(self) -> float:
        """Share of the lanes' time that belongs to a submission."""
        return self._share(sum(self.seconds.values()))

    @property
    def judging(self) -> float:
        """Share of the lanes' time in checks and timings."""
        return self._share(self.seconds[Activity.CHECK] + self.seconds[Activity.TIME])

    def _share(self, seconds: float) -> float:
        whole = self.lanes * self.session_s
        return seconds / whole if whole else 0.0


def uses(timeline: SessionTimeline) -> list[Use]:
    """Return how the lanes of each kind were used, GPUs first."""
    lanes = timeline.session.lanes
    seconds: dict[LaneKind, dict[Activity, float]] = {kind: dict.fromkeys(Activity, 0.0) for kind in LaneKind}
    for turn in timeline.turns:
        for span in turn.spans:
            seconds[lanes[turn.lane].kind][span.activity] += span.seconds
    counts = Counter(lane.kind for lane in lanes)
    return [Use(kind, counts[kind], seconds[kind], timeline.ended_s) for kind in LaneKind if counts[kind]]


class Wait(NamedTuple):
    """Time of one built submission between its build and a GPU."""

    began_s: float
    ended_s: float


def waits(timeline: SessionTimeline) -> list[Wait]:
    """Return how long each built submission waited for a GPU, in the order of the GPU's turns."""
    built: dict[tuple[str, str], deque[float]] = defaultdict(deque)
    found = []
    for turn in sorted(timeline.turns, key=lambda each: (each.began_s, each.ended_s)):
        if turn.is_built:
            built[turn.problem, turn.name].append(turn.ended_s)
        elif timeline.session.lanes[turn.lane].kind is LaneKind.GPU and built[turn.problem, turn.name]:
            since_s = built[turn.problem, turn.name].popleft()
            found.append(Wait(since_s, max(since_s, turn.began_s)))
    return found


def lane_names(session: Session) -> list[str]:
    """Return the name of each lane: `GPU 0`, `build 3`."""
    numbers: Counter[LaneKind] = Counter()
    names = []
    for lane in session.lanes:
        label = "GPU" if lane.kind is LaneKind.GPU else lane.kind.value
        names.append(f"{label} {numbers[lane.kind]}")
        numbers[lane.kind] += 1
    return names
