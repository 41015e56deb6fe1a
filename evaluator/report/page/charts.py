"""Charts of pages: the curves of fast_p, and ratios with intervals on a logarithmic axis. Pure."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from evaluator.report.page import svg
from evaluator.report.run.intervals import share
from evaluator.text import one_line, ratio

_WIDTH, _HEIGHT = 560, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 16, 14, 36
_MOST_P = 5.0
_NAMES, _VALUES, _ROW = 200, 64, 22
_LONGEST_NAME = 26
MOST_ROWS = 30
CURVE_STYLES = 8
"""Styles of curves in page.css."""


class Ratio(NamedTuple):
    """A positive ratio of a submission with its interval; unknown ends are None."""

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
    """Whether a value has a place on a logarithmic axis."""
    return 0 < value < math.inf


def _x(p: float) -> float:
    return _LEFT + p / _MOST_P * (_WIDTH - _LEFT - _RIGHT)


def _y(part: float) -> float:
    return _HEIGHT - _BOTTOM - part * (_HEIGHT - _BOTTOM - _TOP)
