"""SVG of a session's timeline, of a size that does not grow with the number of grades. Pure.

Each lane is divided into columns, and each column is stacked by the shares of the activities in the column's time.
Colours come from the page's style.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple
from xml.etree import ElementTree

from evaluator.report.timeline.recording import Activity, LaneKind, SessionTimeline, Span, lane_names, waits
from evaluator.text import counted, duration

_WIDTH, _LEFT, _RIGHT, _TOP = 1100, 76, 8, 6
_COLUMNS = 500
_ROW, _BAR = 20, 16
_MOST_LANES = 40
_TICKS = 5
_ORDER = {LaneKind.GPU: 0, LaneKind.GRADE: 1, LaneKind.BUILD: 2}

_Shares = list[dict[Activity, float]]


class Chart(NamedTuple):
    """The SVG, and the number of lanes that it leaves out."""

    svg: str
    left_out: int


def chart(timeline: SessionTimeline) -> Chart:
    """Return the chart of a session: GPUs first, then the other lanes, then how many built submissions waited."""
    lanes = timeline.session.lanes
    shown = sorted(range(len(lanes)), key=lambda lane: (_ORDER[lanes[lane].kind], lane))[:_MOST_LANES]
    spans: dict[int, list[Span]] = defaultdict(list)
    for turn in timeline.turns:
        spans[turn.lane] += turn.spans
    waiting = _waiting(timeline)
    height = _TOP + _ROW * (len(shown) + bool(waiting)) + 24
    label = f"Timeline of {counted(len(timeline.turns), 'turn')} on {counted(len(lanes), 'lane')}"
    root = ElementTree.Element("svg", {"viewBox": f"0 0 {_WIDTH} {height}", "role": "img", "aria-label": label})
    names = lane_names(timeline.session)
    for row, lane in enumerate(shown):
        top = _TOP + row * _ROW
        _text(root, _LEFT - 8, top + _BAR - 3, names[lane], "end")
        for activity, path in _paths(_shares(spans[lane], timeline.ended_s), top).items():
            ElementTree.SubElement(root, "path", {"class": f"a-{activity.value}", "d": path})
    if waiting:
        _waiting_row(root, _TOP + len(shown) * _ROW, waiting)
    _axis(root, height, timeline.ended_s)
    return Chart(ElementTree.tostring(root, encoding="unicode"), len(lanes) - len(shown))


def _shares(spans: Iterable[Span], end_s: float) -> _Shares:
    """Return the share of each activity in each column."""
    shares: _Shares = [defaultdict(float) for _ in range(_COLUMNS)]
    for span in spans:
        for column, share in _columns(span.began_s, span.ended_s, end_s):
            shares[column][span.activity] += share
    return shares


def _columns(began_s: float, ended_s: float, end_s: float) -> Iterable[tuple[int, float]]:
    """Yield the columns of a time with the covered share of each.

    >>> list(_columns(0.0, 1.0, 250.0))
    [(0, 1.0), (1, 1.0)]
    """
    if end_s <= 0:
        return
    began, ended = (min(max(at_s / end_s, 0.0), 1.0) * _COLUMNS for at_s in (began_s, ended_s))
    for column in range(int(began), min(int(ended) + 1, _COLUMNS)):
        share = min(ended, column + 1) - max(began, column)
        if share > 0:
            yield column, share


def _paths(shares: _Shares, top: float) -> dict[Activity, str]:
    """Return one path for each activity. Equal neighbours make one rectangle."""
    paths: dict[Activity, list[str]] = defaultdict(list)
    runs: list[tuple[tuple[tuple[Activity, int], ...], int, int]] = []
    for column, share in enumerate(shares):
        stack = tuple((activity, round(share[activity] * _BAR)) for activity in Activity if share.get(activity))
        if runs and runs[-1][0] == stack:
            runs[-1] = (stack, runs[-1][1], column + 1)
        else:
            runs.append((stack, column, column + 1))
    for stack, first, last in runs:
        bottom = top + _BAR
        for activity, high in stack:
            tall = min(high, round(bottom - top))
            bottom -= tall
            if tall:
                left, width = _x(first), _x(last) - _x(first)
                paths[activity].append(f"M{left:.1f} {bottom:g}h{width:.1f}v{tall}h-{width:.1f}z")
    return {activity: "".join(parts) for activity, parts in paths.items()}


def _waiting(timeline: SessionTimeline) -> list[float]:
    """Return the mean number of built submissions that waited for a GPU, for each column; empty if none waited."""
    means = [0.0] * _COLUMNS
    for each in waits(timeline):
        for column, share in _columns(each.began_s, each.ended_s, timeline.ended_s):
            means[column] += share
    return means if any(means) else []


def _waiting_row(root: ElementTree.Element, top: float, means: list[float]) -> None:
    most = max(means)
    _text(root, _LEFT - 8, top + _BAR - 3, f"waiting {most:.0f}", "end")
    path = "".join(
        f"M{_x(column):.1f} {top + _BAR:g}v-{mean / most * _BAR:.1f}h{_x(1) - _x(0):.1f}V{top + _BAR:g}z"
        for column, mean in enumerate(means)
        if mean
    )
    ElementTree.SubElement(root, "path", {"class": "a-waiting", "d": path})


def _axis(root: ElementTree.Element, height: float, end_s: float) -> None:
    for tick in range(_TICKS + 1):
        x = _x(tick / _TICKS * _COLUMNS)
        ends = {"x1": f"{x:.1f}", "x2": f"{x:.1f}", "y1": str(_TOP), "y2": str(height - 20), "class": "grid"}
        ElementTree.SubElement(root, "line", ends)
        anchor = "end" if tick == _TICKS else "middle"
        _text(root, x, height - 5, duration(end_s * tick / _TICKS * 1000), anchor)


def _x(column: float) -> float:
    return _LEFT + column / _COLUMNS * (_WIDTH - _LEFT - _RIGHT)


def _text(root: ElementTree.Element, x: float, y: float, text: str, anchor: str) -> None:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}
    ElementTree.SubElement(root, "text", place).text = text
