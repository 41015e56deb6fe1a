"""Host time of a grade's stages, divided into sections and operations.

A *section* is a place in a stage, as the windows of the submission. An *operation* is a kind of work, as the drawing of
inputs. A meter sums the seconds of each pair, and keeps no list of calls: a window has thousands of operations. An
inner block interrupts the time of an outer block, and the sums of a stage add up to the stage.

All times are times of the judge's host. Work on a GPU is asynchronous: GPU time appears where the host waits next,
mostly in `Operation.GPU_WORK` or in a comparison. No block begins or ends while a clock runs.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from enum import StrEnum
from typing import Annotated, NamedTuple

import msgspec

from evaluator.records import Record

_LEAST_S = 0.001
"""Smaller sums are part of the stage's `OTHER`. The sums of a grade then take 3 to 5 kB."""
MOST_SUMS = 256
MOST_SECTIONS = 8
_MOST_TIMES = 1 << 53
"""Larger numbers are no integers for the readers of a trace, and sums of thousands of digits have no text."""


class Section(StrEnum):
    """Place in a stage. Sections may be nested: the windows of the submission."""

    FIRST_CALL = "first call"
    VALUES = "input distributions"
    REFERENCE = "reference's runners"
    REFERENCE_BEFORE = "reference before"
    BASELINES = "other baselines"
    SUBMISSION = "submission"
    REFERENCE_AFTER = "reference after"
    EMPTY_CALLS = "empty calls"
    CALLS = "single calls"
    WINDOWS = "windows"
    SPOT_CHECKS = "spot checks"
    PRECISION = "reduced precision"
    ABLATION = "without own kernels"


class Operation(StrEnum):
    """Kind of work of the judge's host. A wait belongs to the waiting operation."""

    LEASE = "GPU's lease"
    MODEL = "reference's model"
    MEMORY = "GPU memory"
    START = "runner starts"
    LOAD = "submission is loaded"
    CONSTRUCTION = "model is constructed"
    END = "runner ends"
    WEIGHTS = "weights"
    INPUTS = "inputs"
    PLAIN = "plain reference"
    FLOAT64 = "float64 reference"
    PREPARATION = "runner prepares"
    LAYOUT = "layout of calls"
    GPU_WORK = "judge's GPU work"
    CALL = "clocked calls"
    COMPARISON = "comparison"
    INPUTS_KEPT = "inputs unchanged"
    GPU_STATE = "state of the GPU"
    INTERVAL = "interval of the speedup"
    MACHINE_CODE = "machine code"
    OTHER = "other"


class SpanSum(Record, frozen=True, array_like=True):
    """Seconds of an operation in a section of a stage, and how often the operation began."""

    stage: Annotated[str, msgspec.Meta(max_length=200)]
    sections: Annotated[tuple[Section, ...], msgspec.Meta(max_length=MOST_SECTIONS)]
    operation: Operation
    seconds: Annotated[float, msgspec.Meta(ge=0, le=1e8)]
    times: Annotated[int, msgspec.Meta(ge=0, le=_MOST_TIMES)] = 0


SpanSums = Annotated[list[SpanSum], msgspec.Meta(max_length=MOST_SUMS)]


class _Place(NamedTuple):
    """Key of a sum. The empty stage is the time outside of all stages."""

    stage: str = ""
    sections: tuple[Section, ...] = ()
    operation: Operation = Operation.OTHER


class Meter:
    """Meter of a grade, for a single thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start outside of all stages."""
        self._clock = clock
        self.at = _Place()
        self._since_s = clock()
        self._seconds: dict[_Place, float] = {}
        self._times: dict[_Place, int] = {}

    def sums(self) -> list[SpanSum]:
        """Return the sums of divided stages, in the order of first beginnings. Small sums are merged."""
        self.move_to(self.at)
        divided = {place.stage for place in self._seconds if place != _Place(place.stage)} - {""}
        merged: dict[_Place, float] = {}
        for place, seconds in self._seconds.items():
            kept = place if seconds >= _LEAST_S else _Place(place.stage)
            merged[kept] = merged.get(kept, 0.0) + seconds
        found = [
            SpanSum(*place, round(seconds, 5), self._times.get(place, 0))
            for place, seconds in merged.items()
            if place.stage in divided and seconds > 0
        ]
        return found[:MOST_SUMS]

    def count(self, place: _Place) -> None:
        """Count a beginning of `place`."""
        self._times[place] = self._times.get(place, 0) + 1

    def move_to(self, place: _Place) -> None:
        """End the time of the current place, and begin the time of `place`."""
        now_s = self._clock()
        self._seconds[self.at] = self._seconds.get(self.at, 0.0) + now_s - self._since_s
        self.at, self._since_s = place, now_s


class _Block:
    """Context manager of a place. Afterwards, the time of the outer place continues."""

    __slots__ = ("_before", "_meter", "_place")

    def __init__(self, meter: Meter, place: _Place) -> None:
        self._meter, self._place, self._before = meter, place, meter.at

    def __enter__(self) -> None:
        self._meter.move_to(self._place)
        if self._place != self._before:
            self._meter.count(self._place)

    def __exit__(self, *_: object) -> None:
        self._meter.move_to(self._before)


_current: ContextVar[Meter | None] = ContextVar("meter", default=None)
"""Meter of the thread's grade. Other threads of the judge have none: no second counts twice."""
_UNMEASURED = contextlib.nullcontext()


@contextlib.contextmanager
def metered(clock: Callable[[], float] = time.monotonic) -> Iterator[Meter]:
    """Measure the blocks of the thread with a new meter."""
    meter = Meter(clock)
    token = _current.set(meter)
    try:
        yield meter
    finally:
        _current.reset(token)


def stage(name: str) -> contextlib.AbstractContextManager[None]:
    """Measure a stage of a grade."""
    meter = _current.get()
    return _UNMEASURED if meter is None else _Block(meter, _Place(name))


def section(inner: Section) -> contextlib.AbstractContextManager[None]:
    """Measure a section, inside of the current section."""
    meter = _current.get()
    if meter is None:
        return _UNMEASURED
    at = meter.at
    return _Block(meter, _Place(at.stage, (*at.sections, inner)[:MOST_SECTIONS]))


def operation(kind: Operation) -> contextlib.AbstractContextManager[None]:
    """Measure an operation in the current section. An operation inside of another has a sum of its own."""
    meter = _current.get()
    if meter is None:
        return _UNMEASURED
    at = meter.at
    return _Block(meter, _Place(at.stage, at.sections, kind))
