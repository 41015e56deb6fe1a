"""Timelines of a run as a section of its HTML page: charts of the longest sessions, and how the lanes were used."""

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from evaluator.report.timeline.chart import chart
from evaluator.report.timeline.recording import MEANINGS, Activity, LaneKind, SessionTimeline, Use, uses, waits
from evaluator.text import counted, duration, one_line

_MOST_CHARTS = 2
_KINDS = {LaneKind.GPU: "GPU", LaneKind.GRADE: "grade", LaneKind.BUILD: "build"}


class DrawnSession(NamedTuple):
    """One session of the page: title, remarks, SVG, and the table of its lanes."""

    title: str
    remarks: list[str]
    svg: Markup
    header: list[str]
    rows: list[list[str]]


class TimelineSection(NamedTuple):
    """The section: sessions in the order of their starts, the legend, and a remark about left-out sessions."""

    sessions: list[DrawnSession]
    legend: list[tuple[str, str]]
    left_out: str


def timeline_section(timelines: Sequence[SessionTimeline]) -> TimelineSection | None:
    """Return the section; None without a recorded session."""
    if not timelines:
        return None
    longest = sorted(timelines, key=lambda each: -each.ended_s)[:_MOST_CHARTS]
    shown = sorted(longest, key=lambda each: each.session.started_at)
    missing = len(timelines) - len(shown)
    left_out = f"{counted(missing, 'shorter session')} left out; `report --timeline FILE` has all." if missing else ""
    legend = [(activity.value, f"{activity.value}: {MEANINGS[activity]}") for activity in Activity]
    return TimelineSection([_drawn(each) for each in shown], legend, left_out)


def _drawn(timeline: SessionTimeline) -> DrawnSession:
    drawn = chart(timeline)
    session = timeline.session
    title = f"{one_line(session.host, 60)}, {session.started_at.isoformat(timespec='seconds')}"
    remarks = [f"{counted(drawn.left_out, 'lane')} not drawn."] if drawn.left_out else []
    if waiting := waits(timeline):
        longest_s, sum_s = (function(each.ended_s - each.began_s for each in waiting) for function in (max, sum))
        remarks.append(
            f"{counted(len(waiting), 'built submission')} waited for a GPU, "
            f"{duration(sum_s / len(waiting) * 1000)} on average, {duration(longest_s * 1000)} at most."
        )
    header = ["lanes", "busy", *(f"{activity.value}, s" for activity in Activity)]
    svg = Markup(drawn.svg)  # noqa: S704 - a serialised tree of escaped text
    return DrawnSession(title, remarks, svg, header, [_row(use) for use in uses(timeline)])


def _row(use: Use) -> list[str]:
    return [
        f"{use.lanes} {_KINDS[use.kind]}",
        f"{use.busy:.0%}",
        *(f"{use.seconds[activity]:.1f}" for activity in Activity),
    ]


def use_lines(timeline: SessionTimeline) -> list[str]:
    """Return one line for each kind of lane: how busy, and with what."""
    lines = []
    for use in uses(timeline):
        parts = [f"{activity.value} {seconds:.1f} s" for activity, seconds in use.seconds.items() if seconds >= 0.05]
        lanes = counted(use.lanes, f"{_KINDS[use.kind]} lane")
        lines.append(f"{lanes}: {use.busy:.0%} of {duration(use.session_s * 1000)} busy; {', '.join(parts)}")
    return lines
