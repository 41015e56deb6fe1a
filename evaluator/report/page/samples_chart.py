"""Chart of a card's samples in the order of the calls: reference, submission, reference again. Pure.

The size of the chart does not grow with the number of samples: each column is the range of neighbouring samples.
"""

import statistics
from collections.abc import Sequence

from markupsafe import Markup

from evaluator.records import CallKind, Timing
from evaluator.report.page import svg
from evaluator.text import counted, duration

_WIDTH, _HEIGHT = 720, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 18, 24
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
    root = svg.picture(_WIDTH, _HEIGHT, "Samples in the order of the calls")
    for share in (0.0, 0.5, 1.0):
        svg.line(root, (_LEFT, _y(share), _WIDTH - _RIGHT, _y(share)), "grid")
        svg.text(root, _LEFT - 8, _y(share) + 4, duration(top_ms * share) if share else "0", "end")
    width = (_WIDTH - _LEFT - _RIGHT - 2 * _GAP) / 3
    for number, (side, run, median_ms) in enumerate(parts):
        values_ms, noun = run.samples_ms, _NOUNS[run.kind]
        left = _LEFT + number * (width + _GAP)
        above = sum(value > top_ms for value in values_ms)
        label = f"{side}, {counted(len(values_ms), noun)}" + (f", {above} above the axis" if above else "")
        svg.text(root, left + width / 2, _HEIGHT - 6, label, "middle")
        median = _y(_fraction(median_ms, top_ms))
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
        strokes.append(f"M{x:.1f} {_y(min(column_parts)):.1f}V{_y(max(column_parts)):.1f}")
    return "".join(strokes)


def _fraction(value_ms: float, top_ms: float) -> float:
    return min(max(value_ms / top_ms, 0.0), 1.0)


def _y(part: float) -> float:
    return _HEIGHT - _BOTTOM - part * (_HEIGHT - _BOTTOM - _TOP)
