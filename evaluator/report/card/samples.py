"""Distributions of both sides' samples on screen: strips of bars, one character per cell."""

from collections.abc import Sequence

from rich.text import Text

from evaluator.records import Samples, Timing
from evaluator.report.card.histogram import Axis, heights, own_axis
from evaluator.report.card.measurement import samples_of
from evaluator.report.layout.sheet import MARGIN_AND_LABEL, Sheet, styled
from evaluator.text import counted, duration, side_by_side

_NAMES = ("reference", "submission")
_STYLES = ("cyan", "green")
_MOST_CELLS = 32
"""Maximum cells of a strip. A side has 20 to 200 samples: more cells would show single calls only."""


def show_samples(sheet: Sheet, timing: Timing) -> None:
    """Draw each side from its fastest to its slowest call, then both sides on an axis from zero."""
    runs = ([timing.reference_before, timing.reference_after], [timing.submission])
    sides = [[value for run in side for value in run.samples_ms] for side in runs]
    cells = sheet.width - MARGIN_AND_LABEL
    magnified = min(cells, _MOST_CELLS)
    for number, (name, style, side, values_ms) in enumerate(zip(_NAMES, _STYLES, runs, sides, strict=True)):
        sheet.row("" if number else "Samples", _said(sheet, name, side, values_ms))
        if values_ms:
            sheet.row("", _strip(sheet, own_axis(values_ms, magnified), values_ms, style))
    together = [value for side in sides for value in side]
    if not together:
        return
    shared = Axis(0.0, max(together), cells)
    sheet.row("From zero", Text(f"to {duration(shared.high_ms, sheet.symbols.micro)}, reference above submission"))
    for style, values_ms in zip(_STYLES, sides, strict=True):
        sheet.row("", _strip(sheet, shared, values_ms, style))


def _said(sheet: Sheet, name: str, runs: Sequence[Samples], values_ms: Sequence[float]) -> Text:
    if not values_ms:
        return Text(f"{name}: none")
    low, high = side_by_side(min(values_ms), max(values_ms), sheet.symbols.micro)
    text = Text(f"{name}: {samples_of(runs)}, {low} to {high}")
    if far := sum(run.outliers or 0 for run in runs):
        text.append(f", {counted(far, 'outlier')}")
    # For the reference, the second run's: see `Samples`.
    text.append(f"; first {duration(runs[-1].first_call_ms, sheet.symbols.micro)}", "dim")
    if void := sum(run.void_calls for run in runs):
        text.append(f", {void} void", "dim")
    return text


def _strip(sheet: Sheet, axis: Axis, values_ms: Sequence[float], style: str) -> Text:
    levels = heights(axis.counts(values_ms), len(sheet.symbols.bars) - 1)
    return styled("".join(sheet.symbols.bars[level] for level in levels), style)
