"""Distributions of both sides' samples on screen: strips of bars, one character per cell.

The samples come from an untrusted card.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text

from evaluator.records import Samples, Timing
from evaluator.report.card.measurement import samples_of
from evaluator.report.layout.sheet import MARGIN_AND_LABEL, Sheet, styled
from evaluator.text import counted, duration, side_by_side

_NAMES = ("reference", "submission")
_STYLES = ("cyan", "green")
_MOST_CELLS = 32
"""Maximum cells of a strip. A side has 20 to 200 samples: more cells would show single calls only."""


class Axis(NamedTuple):
    """A time range in `cells` equal parts."""

    low_ms: float
    high_ms: float
    cells: int

    def place(self, value_ms: float) -> float:
        """Return the position of a time, from 0 at the low end to 1 at the high end, clamped to this range.

        >>> Axis(1.0, 3.0, 4).place(1.5), Axis(1.0, 3.0, 4).place(9.0)
        (0.25, 1.0)
        """
        # Halved before the subtraction: the difference of a card's numbers may overflow.
        width = self.high_ms / 2 - self.low_ms / 2
        if not width > 0:
            return 0.0
        return min(max((value_ms / 2 - self.low_ms / 2) / width, 0.0), 1.0)

    def counts(self, values_ms: Sequence[float]) -> list[int]:
        """Count the values in each cell.

        >>> Axis(0.0, 4.0, 4).counts([0.5, 0.6, 2.0, 4.0])
        [2, 0, 1, 1]
        """
        counts = [0] * self.cells
        for value in values_ms:
            counts[min(int(self.place(value) * self.cells), self.cells - 1)] += 1
        return counts


def own_axis(values_ms: Sequence[float], cells: int) -> Axis:
    """Return an axis from the smallest to the largest of `values_ms`, which is not empty."""
    return Axis(min(values_ms), max(values_ms), cells)


def heights(counts: Sequence[int], levels: int) -> list[int]:
    """Scale counts to 0..`levels`. The largest count has the top level, and no positive count becomes 0.

    >>> heights([0, 1, 50, 100], 8)
    [0, 1, 4, 8]
    """
    most = max(counts, default=0)
    return [math.ceil(count * levels / most) if count else 0 for count in counts]


def show_samples(sheet: Sheet, timing: Timing) -> None:
    """Draw each side from its fastest to its slowest call, then both sides on an axis from zero."""
    runs = ([timing.reference_before, timing.reference_after], [timing.submission])
    sides = [[value for run in side for value in run.samples_ms] for side in runs]
    cells = sheet.width - MARGIN_AND_LABEL
    magnified = min(cells, _MOST_CELLS)
    for number, (name, style, side, values_ms) in enumerate(zip(_NAMES, _STYLES, runs, sides, strict=True)):
        sheet.row("" if number else "Samples", _side_text(sheet, name, side, values_ms))
        if values_ms:
            sheet.row("", _strip(sheet, own_axis(values_ms, magnified), values_ms, style))
    together = [value for side in sides for value in side]
    if not together:
        return
    shared = Axis(0.0, max(together), cells)
    sheet.row("From zero", Text(f"to {duration(shared.high_ms, sheet.symbols.micro)}, reference above submission"))
    for style, values_ms in zip(_STYLES, sides, strict=True):
        sheet.row("", _strip(sheet, shared, values_ms, style))


def _side_text(sheet: Sheet, name: str, runs: Sequence[Samples], values_ms: Sequence[float]) -> Text:
    if not values_ms:
        return Text(f"{name}: none")
    low, high = side_by_side(min(values_ms), max(values_ms), sheet.symbols.micro)
    text = Text(f"{name}: {samples_of(runs)}, {low} to {high}")
    if outliers := sum(run.outliers or 0 for run in runs):
        text.append(f", {counted(outliers, 'outlier')}")
    # For the reference, the second run's: see `Samples`.
    text.append(f"; first {duration(runs[-1].first_call_ms, sheet.symbols.micro)}", "dim")
    if void := sum(run.void_calls for run in runs):
        text.append(f", {void} void", "dim")
    return text


def _strip(sheet: Sheet, axis: Axis, values_ms: Sequence[float], style: str) -> Text:
    levels = heights(axis.counts(values_ms), len(sheet.symbols.bars) - 1)
    return styled("".join(sheet.symbols.bars[level] for level in levels), style)
