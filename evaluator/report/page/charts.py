"""Charts of the pages: shares of fast submissions, and samples.

The size of the chart does not grow with the number of samples: each column is the range of neighbouring samples.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from evaluator.records import CallKind, Timing
from evaluator.report.page import svg
from evaluator.report.run.intervals import share
from evaluator.text import counted, duration, one_line, ratio

_WIDTH, _HEIGHT = 560, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 16, 14, 36
_MOST_P = 5.0
_NAMES, _VALUES, _ROW = 200, 64, 22
_LONGEST_NAME = 26
MOST_ROWS = 30
CURVE_STYLES = 8
"""Styles of curves in page.css."""


class Ratio(NamedTuple):
    """A positive ratio of a submission with the interval; unknown ends are None."""

    name: str
    value: float
    low: float | None
    high: float | None


class Curve(NamedTuple):
    """Speedups of correct submissions, and the number of all submissions."""

    speedups: Sequence[float]
    submissions: int


def fast_curves(curves: Sequence[Curve]) -> Markup:
    """Return fast_p over p from 0 to 5 for each run; a single run has the 95 % band. Empty without any speedup."""
    if not any(curve.speedups and curve.submissions for curve in curves):
        return Markup("")
    title = "Share of submissions that are correct and more than p times as fast as the reference"
    root = svg.picture(_WIDTH, _HEIGHT, title)
    for percent in (0, 25, 50, 75, 100):
        y = _y(percent / 100)
        svg.line(root, (_LEFT, y, _WIDTH - _RIGHT, y), "grid")
        svg.text(root, _LEFT - 6, y + 4, f"{percent} %", "end")
    for tick in range(int(_MOST_P) + 1):
        svg.text(root, _x(tick), _HEIGHT - 19, f"{tick}x", "middle")
    svg.text(root, (_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 4, "p: more than p times as fast", "middle")
    svg.line(root, (_x(1), _y(0), _x(1), _y(1)), "one")
    for number, (speedups, submissions) in enumerate(curves):
        middle, low, high = [], [], []
        for step in range(101):
            p = step * _MOST_P / 100
            estimate = share(sum(value > p for value in speedups), submissions)
            if estimate is not None:
                middle.append((_x(p), _y(estimate.value)))
                low.append((_x(p), _y(estimate.low or 0.0)))
                high.append((_x(p), _y(estimate.high or 0.0)))
        if len(curves) == 1:
            svg.area(root, [*high, *reversed(low)], "band")
        svg.curve(root, middle, "curve" if len(curves) == 1 else f"curve c{number % CURVE_STYLES}")
    return svg.markup(root)


def ratio_chart(ratios: Sequence[Ratio], title: str, unity_label: str) -> Markup:
    """Return the first `MOST_ROWS` ratios with their intervals on a logarithmic axis; empty without any.

    `one` names the line at ratio 1.
    """
    drawn = [row for row in ratios if _drawable(row.value)][:MOST_ROWS]
    if not drawn:
        return Markup("")
    logs = [math.log(end) for row in drawn for end in row[1:] if end is not None and _drawable(end)]
    low, high = min(0.0, *logs) - 0.1, max(0.0, *logs) + 0.1
    height = _ROW * len(drawn) + 30
    root = svg.picture(_WIDTH, height, title)

    def x_of(value: float) -> float:
        return _NAMES + (math.log(value) - low) / (high - low) * (_WIDTH - _NAMES - _VALUES)

    svg.line(root, (x_of(1.0), 4, x_of(1.0), height - 24), "one")
    svg.text(root, x_of(1.0), height - 8, unity_label, "middle")
    for number, row in enumerate(drawn):
        y = 16 + number * _ROW
        svg.text(root, _NAMES - 10, y + 4, one_line(row.name, _LONGEST_NAME), "end")
        if row.low is not None and row.high is not None and _drawable(row.low) and _drawable(row.high):
            svg.line(root, (x_of(row.low), y, x_of(row.high), y), "interval")
        svg.dot(root, x_of(row.value), y)
        svg.text(root, _WIDTH - 4, y + 4, f"{ratio(row.value)}x", "end")
    return svg.markup(root)


def _drawable(value: float) -> bool:
    return 0 < value < math.inf


def _x(p: float) -> float:
    return _LEFT + p / _MOST_P * (_WIDTH - _LEFT - _RIGHT)


def _y(part: float) -> float:
    return _HEIGHT - _BOTTOM - part * (_HEIGHT - _BOTTOM - _TOP)


_SAMPLES_WIDTH, _SAMPLES_HEIGHT = 720, 150
_SAMPLES_LEFT, _SAMPLES_RIGHT, _SAMPLES_TOP, _SAMPLES_BOTTOM = 64, 8, 18, 24
_GAP = 16
_COLUMNS = 60
_MEDIANS = 3.0
"""The axis ends at this multiple of the largest median: a slow call would flatten all other calls."""


_NOUNS = {CallKind.WINDOWS: "window", CallKind.SINGLE: "call"}


def samples_chart(timing: Timing) -> Markup:
    """Return the chart; empty without samples."""
    parts = (
        ("reference", timing.reference_before, timing.reference_median_ms),
        ("submission", timing.submission, timing.submission_median_ms),
        ("reference", timing.reference_after, timing.reference_median_ms),
    )
    top_ms = _top_ms([run.samples_ms for _, run, _ in parts])
    if top_ms <= 0:
        return Markup("")
    root = svg.picture(_SAMPLES_WIDTH, _SAMPLES_HEIGHT, "Samples in the order of the calls")
    for fraction in (0.0, 0.5, 1.0):
        svg.line(root, (_SAMPLES_LEFT, _y_of(fraction), _SAMPLES_WIDTH - _SAMPLES_RIGHT, _y_of(fraction)), "grid")
        svg.text(root, _SAMPLES_LEFT - 8, _y_of(fraction) + 4, duration(top_ms * fraction) if fraction else "0", "end")
    width = (_SAMPLES_WIDTH - _SAMPLES_LEFT - _SAMPLES_RIGHT - 2 * _GAP) / 3
    for number, (side, run, median_ms) in enumerate(parts):
        values_ms, noun = run.samples_ms, _NOUNS[run.kind]
        left = _SAMPLES_LEFT + number * (width + _GAP)
        above = sum(value > top_ms for value in values_ms)
        label = f"{side}, {counted(len(values_ms), noun)}" + (f", {above} above the axis" if above else "")
        svg.text(root, left + width / 2, _SAMPLES_HEIGHT - 6, label, "middle")
        median = _y_of(_fraction(median_ms, top_ms))
        svg.line(root, (left, median, left + width, median), "one")
        svg.path(root, _columns([_fraction(value, top_ms) for value in values_ms], left, width), f"samples {side}")
    return svg.markup(root)


def _top_ms(sides: Sequence[Sequence[float]]) -> float:
    """Return the end of the axis: at most the largest sample."""
    largest_ms = max((max(side) for side in sides if side), default=0.0)
    medians_ms = _MEDIANS * max((statistics.median(side) for side in sides if side), default=0.0)
    return min(largest_ms, medians_ms) if medians_ms > 0 else largest_ms


def _columns(parts: Sequence[float], left: float, width: float) -> str:
    """Return a path with a stroke for each column, from the smallest to the largest part of the axis."""
    columns = min(len(parts), _COLUMNS)
    strokes = []
    for column in range(columns):
        column_parts = parts[column * len(parts) // columns : (column + 1) * len(parts) // columns]
        x = left + (column + 0.5) / columns * width
        strokes.append(f"M{x:.1f} {_y_of(min(column_parts)):.1f}V{_y_of(max(column_parts)):.1f}")
    return "".join(strokes)


def _fraction(value_ms: float, top_ms: float) -> float:
    return min(max(value_ms / top_ms, 0.0), 1.0)


def _y_of(part: float) -> float:
    return _SAMPLES_HEIGHT - _SAMPLES_BOTTOM - part * (_SAMPLES_HEIGHT - _SAMPLES_BOTTOM - _SAMPLES_TOP)
