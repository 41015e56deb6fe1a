"""The roofline on screen: rows on the card, and bars against each roof in `show`."""

from typing import NamedTuple

from rich.text import Text

from evaluator.records import Roofline, Timing
from evaluator.report.layout.sheet import MARGIN_AND_LABEL, Sheet, styled
from evaluator.text import amount, counted, duration

_BAR, _SHORTEST = 40, 4
_BESIDE = 32
"""Cells for the name, share and rate beside a bar."""
_STYLES = {"reference": "cyan", "submission": "green"}


def roofline_row(sheet: Sheet, roofline: Roofline) -> None:
    """Show the reached shares of target and floor, with the larger time first, and the reached rates."""
    floor_ms, micro = roofline.floor_ms, sheet.symbols.micro
    if roofline.of_floor is None:
        sheet.row(
            "Roofline", Text(f"the floor is {duration(floor_ms, micro)}; the time is below the clock's resolution")
        )
        return
    if not roofline.target_ms:
        sheet.row("Roofline", Text("no memory floor: the L2 cache can hold all inputs and outputs of a call"))
        return
    moved = amount(roofline.needed_read_bytes + roofline.written_bytes, "B")
    memory_time = f"{moved} at {amount(roofline.bandwidth_bytes_per_s, 'B/s')}"
    rates = [amount(roofline.bytes_per_s, "B/s")] if roofline.bytes_per_s is not None else []
    if roofline.flop_per_s is not None:
        rates.append(amount(roofline.flop_per_s, "FLOP/s"))
    label = "Roofline"
    if roofline.peak_flop_per_s is not None and roofline.target_ms > floor_ms > 0:
        of_target = roofline.of_floor * roofline.target_ms / floor_ms
        products = f"{amount(roofline.flop, 'FLOP')} at {amount(roofline.peak_flop_per_s, 'FLOP/s')}"
        _share_row(
            sheet, label, f"{share(of_target)} of the target", f"{duration(roofline.target_ms, micro)}: {products}"
        )
        label = ""
    _share_row(
        sheet, label, f"{share(roofline.of_floor)} of the memory floor", f"{duration(floor_ms, micro)}: {memory_time}"
    )
    sheet.row("", styled(f"reached {', '.join(rates)}", "dim"))


def _share_row(sheet: Sheet, label: str, share_text: str, derivation: str) -> None:
    sheet.row(label, Text(share_text).append(f"  ({derivation})", "dim"))


class SideRate(NamedTuple):
    """Rate of a side relative to a roof; None without a measurable time."""

    name: str
    rate_per_s: float | None


class RoofPlace(NamedTuple):
    """A roof, with the rates of both sides."""

    name: str
    unit: str
    roof_per_s: float
    sides: tuple[SideRate, SideRate]


def roofs(roofline: Roofline, timing: Timing) -> list[RoofPlace]:
    """Return both sides' rates relative to the bandwidth, and to the peak for problems with operations."""

    def under(name: str, unit: str, amount_moved: int, roof_per_s: float) -> RoofPlace:
        medians = (("reference", timing.reference_median_ms), ("submission", timing.submission_median_ms))
        reference, submission = (SideRate(side, amount_moved / ms * 1e3 if ms > 0 else None) for side, ms in medians)
        return RoofPlace(name, unit, roof_per_s, (reference, submission))

    moved = roofline.needed_read_bytes + roofline.written_bytes
    places = [under("memory", "B/s", moved, roofline.bandwidth_bytes_per_s)]
    if roofline.flop:
        places.append(under("products", "FLOP/s", roofline.flop, roofline.peak_flop_per_s or 0.0))
    return [roof for roof in places if roof.roof_per_s > 0]


def show_roofline(sheet: Sheet, roofline: Roofline, timing: Timing) -> None:
    """Draw both sides against each roof, with the source of the byte counts."""
    for number, roof in enumerate(roofs(roofline, timing)):
        sheet.row("" if number else "Roofs", Text(f"{roof.name} {amount(roof.roof_per_s, roof.unit)}, measured"))
        for side in roof.sides:
            _bar(sheet, side, roof)
    sheet.row("", styled(_evidence(roofline), "dim"))


def share(part: float) -> str:
    """Format a share in per cent, small ones with one more digit.

    >>> share(0.874), share(0.0312), share(1.046)
    ('87 %', '3.1 %', '105 %')
    """
    return f"{part * 100:.0f} %" if part >= 0.1 else f"{part * 100:.1f} %"


def _bar(sheet: Sheet, side: SideRate, roof: RoofPlace) -> None:
    if side.rate_per_s is None:
        sheet.row("", Text(f"{side.name:<10}  below the clock's resolution"))
        return
    part = side.rate_per_s / roof.roof_per_s
    cells = max(min(_BAR, sheet.width - MARGIN_AND_LABEL - _BESIDE), _SHORTEST)
    full = round(cells * max(min(part, 1.0), 0.0))
    line = Text(f"{side.name:<10}  ").append(sheet.symbols.bars[-1] * full, _STYLES[side.name])
    line.append(sheet.symbols.bars[0] * (cells - full), "dim").append(f" {share(part)}")
    sheet.row("", line.append(f"  {amount(side.rate_per_s, roof.unit)}", "dim"))


def _evidence(roofline: Roofline) -> str:
    """Format the source of the byte counts."""
    moved = f"reads {amount(roofline.needed_read_bytes, 'B')}, writes {amount(roofline.written_bytes, 'B')}"
    if roofline.override_reason is not None:
        return f"{moved}; counted by the problem's author"
    parts = [
        f"{source}: {flips.mattered} of {counted(flips.samples, 'sample')} matter"
        for source, flips in (("inputs", roofline.input_flips), ("weights", roofline.state_flips))
        if flips is not None and flips.samples
    ]
    return "; ".join([moved, *parts])
