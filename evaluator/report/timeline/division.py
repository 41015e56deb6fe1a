"""Division of the stages of a session's turns into sections and operations, as tables. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from evaluator.report.layout.table import table_lines
from evaluator.report.timeline.recording import LaneKind, SessionTimeline, Turn
from evaluator.spans import SpanSum
from evaluator.text import one_line

UNDIVIDED = "not divided"
_LEAST_SHARE = 0.01
_WIDTH = 100
_HEADER = ("stage", "part", "seconds", "share")


class Portion(NamedTuple):
    """Seconds of a part of a stage, in all turns."""

    stage: str
    part: str
    seconds: float


def judging_kind(timeline: SessionTimeline) -> LaneKind:
    """Return the kind of lanes for checks and timings: GPUs, or whole grades without a GPU."""
    kinds = {lane.kind for lane in timeline.session.lanes}
    return LaneKind.GPU if LaneKind.GPU in kinds else LaneKind.GRADE


def portions(timeline: SessionTimeline, part_of: Callable[[SpanSum], str]) -> list[Portion]:
    """Return the parts of stages on lanes for checks and timings, the largest first. `part_of` names the parts."""
    kind, lanes = judging_kind(timeline), timeline.session.lanes
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    for turn in timeline.turns:
        if lanes[turn.lane].kind is kind:
            for stage, part, part_s in _parts(turn, part_of):
                seconds[stage, part] += part_s
    found = [Portion(stage, part, sum_s) for (stage, part), sum_s in seconds.items() if sum_s > 0]
    return sorted(found, key=lambda each: -each.seconds)


def section_of(each: SpanSum) -> str:
    """Return the name of the sections of a sum, from the outermost."""
    return ", ".join(each.sections) or "other"


def operation_of(each: SpanSum) -> str:
    """Return the name of the operation of a sum."""
    return each.operation.value


def division_lines(timeline: SessionTimeline) -> list[str]:
    """Return two tables of the time of all turns, by section and by operation; no line without a divided stage."""
    if not any(turn.sums for turn in timeline.turns):
        return []
    whose = "the GPUs' turns" if judging_kind(timeline) is LaneKind.GPU else "the turns"
    by_section, by_operation = portions(timeline, section_of), portions(timeline, operation_of)
    return [
        f"where {whose} went, by section:",
        *_table(by_section),
        f"where {whose} went, by operation of the judge's host:",
        *_table(by_operation),
    ]


def _parts(turn: Turn, part_of: Callable[[SpanSum], str]) -> Iterator[tuple[str, str, float]]:
    """Yield stage, part and seconds. The rest of a stage, as an earlier attempt, is not divided."""
    left_s: dict[str, float] = defaultdict(float)
    for span in turn.spans:
        left_s[span.stage] += span.seconds
    for each in turn.sums:
        left_s[each.stage] -= each.seconds
        yield each.stage, part_of(each), each.seconds
    for stage, seconds in left_s.items():
        yield stage, UNDIVIDED, max(seconds, 0.0)


def _table(found: list[Portion]) -> list[str]:
    """Return the lines of a table. Parts below 1 % of the time are summed in the last row."""
    whole_s = sum(each.seconds for each in found)
    shown = [each for each in found if each.seconds >= _LEAST_SHARE * whole_s]
    small_s = whole_s - sum(each.seconds for each in shown)
    if small_s > 0 and len(shown) < len(found):
        shown.append(Portion("", f"{len(found) - len(shown)} smaller parts", small_s))
    rows = [
        (one_line(each.stage, 40), each.part, f"{each.seconds:.1f}", f"{each.seconds / whole_s:.0%}") for each in shown
    ]
    return table_lines(_HEADER, rows, _WIDTH, names=2)
