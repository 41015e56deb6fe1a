"""A sweep of one axis as a table, as a document, and as a picture. Pure."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from xml.etree import ElementTree

from evaluator.records import CaseName, CaseResult, Constant, Scorecard, Status
from evaluator.report.layout.markup import table_lines
from evaluator.report.page import svg
from evaluator.roofline.least_time import CallWork, Roofs, least_time
from evaluator.text import Symbols, amount, duration, one_line, ratio, significant

_WIDTH, _HEIGHT, _GAP = 640, 240, 40
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 32, 36, 40
_NOTE = 80
_BAR = 10
_STYLE = """
svg { font: 12px system-ui, sans-serif; background: #fff; }
text { fill: #24292f; } .grid { stroke: #d0d7de; } .curve { fill: none; stroke-width: 2; }
.reference { stroke: #6e7781; fill: #6e7781; } .submission { stroke: #0969da; fill: #0969da; }
.roof { stroke: #cf222e; fill: #cf222e; stroke-dasharray: 5 4; } polyline.curve { fill: none; }
"""


class SweepPoint(NamedTuple):
    """A swept value with the result of its case.

    `moved_bytes` and `flop` are those of a call, each byte moved once; None without a count. `least_ms` is the time of
    the roofline; None without measured limits of a GPU.
    """

    value: int
    result: CaseResult
    moved_bytes: int | None
    flop: int | None
    least_ms: float | None

    def bytes_per_s(self, time_ms: float | None) -> float | None:
        """Return the bandwidth of a call of `time_ms`."""
        return self.moved_bytes / time_ms * 1e3 if self.moved_bytes and time_ms else None


class Sweep(NamedTuple):
    """Points of a sweep over the axis `name`, and the measured bandwidth of the GPU, if known."""

    name: str
    points: Sequence[SweepPoint]
    peak_bytes_per_s: float | None = None


def sweep_of(card: Scorecard, name: str, work: Mapping[CaseName, CallWork], roofs: Roofs | None) -> Sweep:
    """Return the sweep of a card's cases over the axis `name`, in ascending order."""
    points = []
    for value, result in sorted(((_integer(case.axes[name]), case) for case in card.cases), key=lambda pair: pair[0]):
        counted_work = work.get(result.name)
        moved = None if counted_work is None else counted_work.read_bytes + counted_work.written_bytes
        least = None if counted_work is None or roofs is None else least_time(counted_work, roofs).least_ms
        flop = None if counted_work is None else counted_work.flop
        points.append(SweepPoint(value, result, moved, flop, least or None))
    return Sweep(name, points, None if roofs is None else roofs.bandwidth_bytes_per_s)


def _integer(value: Constant) -> int:
    return value if isinstance(value, int) else 0


def sweep_document(sweep: Sweep) -> dict[str, Any]:
    """Return the sweep as a document. A time or count that is missing is null."""
    return {
        "axis": sweep.name,
        "peak_bytes_per_s": sweep.peak_bytes_per_s,
        "points": [
            {
                "value": point.value,
                "status": point.result.status,
                "code": point.result.code,
                "reference_median_ms": point.result.reference_median_ms,
                "submission_median_ms": point.result.median_ms,
                "speedup": point.result.speedup,
                "speedup_low": point.result.speedup_low,
                "speedup_high": point.result.speedup_high,
                "moved_bytes": point.moved_bytes,
                "flop": point.flop,
                "least_ms": point.least_ms,
                "submission_bytes_per_s": point.bytes_per_s(point.result.median_ms),
                "reference_bytes_per_s": point.bytes_per_s(point.result.reference_median_ms),
            }
            for point in sweep.points
        ],
    }


def sweep_lines(sweep: Sweep, symbols: Symbols, width: int) -> list[str]:
    """Return a table: a row for each value, with times, speedup, and bandwidth as a bar of the largest."""
    if not any(point.result.is_timed for point in sweep.points):
        results = [[str(point.value), _result(point.result)] for point in sweep.points]
        return table_lines([sweep.name, "result"], results, width)
    header = [sweep.name, "reference", "submission", "speedup", "bandwidth"]
    has_roof = any(point.least_ms for point in sweep.points)
    if has_roof:
        header.append("of roofline")
    top = _top(sweep)
    rows = [[*_row(point, symbols, top), *([_of_roof(point)] if has_roof else [])] for point in sweep.points]
    return table_lines(header, rows, width)


def _row(point: SweepPoint, symbols: Symbols, top: float) -> list[str]:
    result, value = point.result, str(point.value)
    if result.status is not Status.CORRECT or result.median_ms is None or result.reference_median_ms is None:
        return [value, "", _result(result), "", ""]
    bandwidth = point.bytes_per_s(result.median_ms)
    shown = "" if bandwidth is None else f"{_bar(bandwidth / top, symbols)} {amount(bandwidth, 'B/s'):>9}"
    times = [duration(time_ms, symbols.micro) for time_ms in (result.reference_median_ms, result.median_ms)]
    return [value, *times, _speedup(result, symbols.times), shown]


def _result(result: CaseResult) -> str:
    status = "left out" if result.status is None else result.status.value.replace("_", " ")
    return one_line(f"{status} {result.code or ''}".strip(), _NOTE)


def _speedup(result: CaseResult, times: str) -> str:
    if result.speedup is None or result.speedup_low is None or result.speedup_high is None:
        return "not quoted"
    return f"{significant(result.speedup)} {times} ({ratio(result.speedup_low)} to {ratio(result.speedup_high)})"


def _bar(part: float, symbols: Symbols) -> str:
    filled = min(max(round(part * _BAR), 0), _BAR)
    return symbols.bars[-1] * filled + symbols.bars[0] * (_BAR - filled)


def _of_roof(point: SweepPoint) -> str:
    if point.least_ms is None or not point.result.median_ms:
        return ""
    return f"{100 * point.least_ms / point.result.median_ms:.0f} %"


def _top(sweep: Sweep) -> float:
    known = [bandwidth for _, bandwidth in _bandwidths(sweep, "median_ms")]
    return max([*known, sweep.peak_bytes_per_s or 0.0], default=0.0) or 1.0


def _times(sweep: Sweep, field: str) -> list[tuple[float, float]]:
    times = [(float(point.value), getattr(point.result, field)) for point in sweep.points]
    return [(value, time_ms) for value, time_ms in times if time_ms]


def _bandwidths(sweep: Sweep, field: str) -> list[tuple[float, float]]:
    rates = [(float(point.value), point.bytes_per_s(getattr(point.result, field))) for point in sweep.points]
    return [(value, rate) for value, rate in rates if rate]


class _Panel(NamedTuple):
    """A chart on logarithmic axes: curves by class, and labels of the ticks."""

    title: str
    curves: dict[str, list[tuple[float, float]]]
    label: Callable[[float], str]


def sweep_svg(sweep: Sweep, title: str) -> bytes:
    """Return the picture: time of a call and bandwidth over the axis, both axes logarithmic, with the roofline."""
    least = [(float(point.value), point.least_ms) for point in sweep.points if point.least_ms]
    times = {name: _times(sweep, field) for name, field in _SIDES}
    panels = [_Panel("time of a call", {**times, "roof": least}, duration)]
    rates = {name: _bandwidths(sweep, field) for name, field in _SIDES}
    if any(rates.values()):
        peak = [(value, sweep.peak_bytes_per_s) for value, _ in rates["submission"]] if sweep.peak_bytes_per_s else []
        panels.append(_Panel("bandwidth", {**rates, "roof": peak}, lambda value: amount(value, "B/s")))
    title = one_line(title, _NOTE)
    root = svg.picture(_WIDTH, _TOP + len(panels) * (_HEIGHT + _GAP), title)
    root.set("xmlns", "http://www.w3.org/2000/svg")
    root.set("width", str(_WIDTH))
    ElementTree.SubElement(root, "style").text = _STYLE
    svg.text(root, _LEFT, 20, title)
    for number, panel in enumerate(panels):
        _draw(root, panel, sweep, _TOP + number * (_HEIGHT + _GAP))
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


_SIDES = (("reference", "reference_median_ms"), ("submission", "median_ms"))
_LEGEND = 104
_LABELS = {"reference": "reference", "submission": "submission", "roof": "roofline"}


def _draw(root: svg.Picture, panel: _Panel, sweep: Sweep, top: float) -> None:
    values = [height for curve in panel.curves.values() for _, height in curve]
    places = [float(point.value) for point in sweep.points]
    if not values:
        svg.text(root, _LEFT, top + _HEIGHT / 2, f"{panel.title}: nothing was measured")
        return
    x, y = _Scale(places, _LEFT, _WIDTH - _RIGHT), _Scale(values, top + _HEIGHT - _BOTTOM, top + 18)
    svg.text(root, _LEFT, top + 10, panel.title)
    for tick in y.ticks():
        svg.line(root, (_LEFT, y.at(tick), _WIDTH - _RIGHT, y.at(tick)), "grid")
        svg.text(root, _LEFT - 6, y.at(tick) + 4, panel.label(tick), "end")
    for place in _few(places):
        svg.text(root, x.at(place), top + _HEIGHT - _BOTTOM + 16, f"{place:.0f}", "middle")
    svg.text(root, (_LEFT + _WIDTH - _RIGHT) / 2, top + _HEIGHT - 8, sweep.name, "middle")
    shown = {kind: curve for kind, curve in panel.curves.items() if curve}
    for number, (kind, curve) in enumerate(shown.items()):
        points = [(x.at(place), y.at(height)) for place, height in curve]
        svg.curve(root, points, f"curve {kind}")
        for point in points if kind != "roof" else ():
            svg.dot(root, *point, kind)
        legend = _WIDTH - _RIGHT - (len(shown) - number) * _LEGEND
        svg.curve(root, [(legend, top + 6), (legend + 20, top + 6)], f"curve {kind}")
        svg.text(root, legend + 26, top + 10, _LABELS[kind])


class _Scale:
    """Logarithmic scale of positive values, or of values from 0 shifted by 1."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self._low, self._high = min(values), max(values)
        self._start, self._end = start, end
        self._shift = 0.0 if self._low > 0 else 1.0

    def at(self, value: float) -> float:
        """Return the place of a value."""
        low, high = math.log(self._low + self._shift), math.log(self._high + self._shift)
        part = 0.5 if high <= low else (math.log(value + self._shift) - low) / (high - low)
        return self._start + part * (self._end - self._start)

    def ticks(self) -> Iterator[float]:
        """Yield the ends and the middle of the scale."""
        yield self._low
        if self._high > self._low:
            yield math.sqrt(self._low * self._high)
            yield self._high


def _few(places: Sequence[float], most: int = 8) -> list[float]:
    step = -(-len(places) // most)
    return list(places[::step])
