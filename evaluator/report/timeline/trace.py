"""Timelines as a file in Chrome's trace format, which https://ui.perfetto.dev and chrome://tracing open. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from evaluator.report.timeline.recording import SessionTimeline, lane_names, waits
from evaluator.spans import SpanSum
from evaluator.text import one_line

_MICROSECONDS = 1e6


def trace_bytes(timelines: Sequence[SessionTimeline]) -> bytes:
    """Return the trace: one process for each session, one thread for each lane, one slice for each stage.

    The slices in a divided stage have the lengths of sums, in the order of first beginnings: places in the stage are
    not recorded. A counter shows how many built submissions wait for a GPU. Sessions are placed by the host's clock.
    """
    first = min((each.session.started_at for each in timelines), default=None)
    encoder = msgspec.json.Encoder()
    events = [
        encoder.encode(event)
        for number, each in enumerate(timelines, start=1)
        for event in _events(number, each, 0.0 if first is None else (each.session.started_at - first).total_seconds())
    ]
    return b'{"displayTimeUnit":"ms","traceEvents":[\n' + b",\n".join(events) + b"\n]}\n"


def _events(process: int, timeline: SessionTimeline, after_s: float) -> Iterator[dict[str, Any]]:
    session = timeline.session
    name = f"{one_line(session.host, 60)}, {session.started_at.isoformat(timespec='seconds')}"
    yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
    for lane, lane_name in enumerate(lane_names(session)):
        place = {"ph": "M", "pid": process, "tid": lane}
        yield place | {"name": "thread_name", "args": {"name": lane_name}}
        yield place | {"name": "thread_sort_index", "args": {"sort_index": lane}}
    for turn in timeline.turns:
        place = {"ph": "X", "pid": process, "tid": turn.lane}
        submission = one_line(f"{turn.problem}/{turn.name}", 120)
        yield place | {"name": submission} | _when(turn.began_s, turn.ended_s, after_s)
        for span in turn.spans:
            named = {"name": one_line(span.stage, 60), "cat": span.activity.value}
            yield place | named | _when(span.began_s, span.ended_s, after_s)
        last = {span.stage: span for span in turn.spans}
        for stage, span in last.items():
            sums = [each for each in turn.sums if each.stage == stage]
            for part in _parts(sums, 0, span.began_s):
                when = _when(min(part.began_s, span.ended_s), min(part.ended_s, span.ended_s), after_s)
                yield place | {"name": part.name, "cat": "sum", "args": part.arguments} | when
    changes = [change for each in waits(timeline) for change in ((each.began_s, 1), (each.ended_s, -1))]
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


class _Part(NamedTuple):
    """A section or operation of a divided stage."""

    name: str
    began_s: float
    ended_s: float
    arguments: dict[str, Any]


def _parts(sums: Sequence[SpanSum], depth: int, began_s: float) -> Iterator[_Part]:
    """Yield the sections of `sums` at `depth`, each followed by the parts inside, and the operations."""
    groups: dict[tuple[str, bool], list[SpanSum]] = {}
    for each in sums:
        is_section = len(each.sections) > depth
        name = each.sections[depth].value if is_section else each.operation.value
        groups.setdefault((name, is_section), []).append(each)
    for (name, is_section), group in groups.items():
        seconds = sum(each.seconds for each in group)
        arguments = {"seconds": round(seconds, 5)} | (
            {} if is_section else {"times": sum(each.times for each in group)}
        )
        yield _Part(name, began_s, began_s + seconds, arguments)
        if is_section:
            yield from _parts(group, depth + 1, began_s)
        began_s += seconds


def _when(began_s: float, ended_s: float, after_s: float) -> dict[str, int]:
    began_us = round((after_s + began_s) * _MICROSECONDS)
    return {"ts": began_us, "dur": max(0, round((after_s + ended_s) * _MICROSECONDS) - began_us)}
