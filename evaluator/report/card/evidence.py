"""Rows of a card's evidence: roofline, profile, baselines, samples.

The samples come from an untrusted card.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text

from evaluator.records import (
    Baseline,
    BaselineKind,
    CallKind,
    Counters,
    KernelCounters,
    KernelResources,
    KernelUse,
    Profiling,
    Roofline,
    Samples,
    Tf32,
    Timing,
)
from evaluator.report.card.measurement import interval_text, samples_of
from evaluator.report.layout.sheet import MARGIN_AND_LABEL, Sheet, styled
from evaluator.text import amount, counted, duration, side_by_side, significant

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
    """Format a share in per cent, small shares with a second digit.

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
    moved = f"reads {amount(roofline.needed_read_bytes, 'B')}, writes {amount(roofline.written_bytes, 'B')}"
    if roofline.override_reason is not None:
        return f"{moved}; counted by the problem's author"
    parts = [
        f"{source}: {flips.mattered} of {counted(flips.samples, 'sample')} matter"
        for source, flips in (("inputs", roofline.input_flips), ("weights", roofline.state_flips))
        if flips is not None and flips.samples
    ]
    return "; ".join([moved, *parts])


_MOST_KERNELS = 5
_MOST_RESOURCES = 4
_NAME = 48


def profiling_rows(sheet: Sheet, profiling: Profiling) -> None:
    """Show the profiled call. The submission's own process reported the data."""
    if profiling.finding is not None:
        sheet.row("Profile", sheet.say(profiling.finding.message, 200, "yellow"))
    else:
        _summary(sheet, profiling)
        for use in profiling.kernels[:_MOST_KERNELS]:
            part = use.time_us / profiling.time_us if profiling.time_us > 0 else 0.0
            sheet.row("", Text(f"{share(part):>6}  ").append_text(_kernel_text(sheet, use)))
        _omitted_row(sheet, len(profiling.kernels), profiling.other_kernels)
    if profiling.counters is not None:
        _counters(sheet, profiling.counters)
    for number, resources in enumerate(profiling.resources[:_MOST_RESOURCES]):
        sheet.row("" if number else "Compiled", _resources(sheet, resources))


def _summary(sheet: Sheet, profiling: Profiling) -> None:
    on_gpu = any(use.own is not None for use in profiling.kernels)
    text = Text(f"{counted(profiling.launches, 'kernel run' if on_gpu else 'operation')}, ")
    text.append(duration(profiling.time_us / 1e3, sheet.symbols.micro))
    if profiling.own_share is not None:
        text.append(f", {share(profiling.own_share)} of the time in own kernels")
    sheet.row("Profile", text.append("  reported by the submission's own process", "dim"))


def _kernel_text(sheet: Sheet, kernel: KernelUse | KernelCounters) -> Text:
    text = sheet.say(kernel.name, _NAME).append(f"  {duration(kernel.time_us / 1e3, sheet.symbols.micro)}", "dim")
    if kernel.launches != 1:
        text.append(f" in {kernel.launches}", "dim")
    return text.append("  own", "green") if kernel.own else text


def _omitted_row(sheet: Sheet, kernels: int, others: int) -> None:
    if omitted := max(kernels - _MOST_KERNELS, 0) + others:
        sheet.row("", styled(f"and {counted(omitted, 'other')}", "dim"))


def _counters(sheet: Sheet, counters: Counters) -> None:
    if counters.finding is not None:
        sheet.row("Counters", sheet.say(counters.finding.message, 300, "yellow"))
        sheet.row("", styled(f"{sheet.symbols.arrow} ", "dim").append_text(sheet.say(counters.finding.next_step, 400)))
        return
    first = f"the first {counters.launches} kernel runs" if counters.cut else counted(counters.launches, "kernel run")
    sheet.row("Counters", Text(first).append("  of a call that Nsight Compute watched", "dim"))
    for kernel in counters.kernels[:_MOST_KERNELS]:
        sheet.row("", _kernel_text(sheet, kernel))
        sheet.row("", Text(f"  {_counters_text(kernel)}"))
    _omitted_row(sheet, len(counters.kernels), counters.other_kernels)


def _counters_text(kernel: KernelCounters) -> str:
    parts = []
    if kernel.dram_bytes is not None and kernel.dram_bytes_per_s is not None:
        parts.append(f"{amount(kernel.dram_bytes, 'B')} at {amount(kernel.dram_bytes_per_s, 'B/s')}")
    if kernel.bandwidth_percent is not None:
        parts.append(f"{share(kernel.bandwidth_percent / 100)} of peak")
    if kernel.occupancy_percent is not None:
        parts.append(f"occupancy {share(kernel.occupancy_percent / 100)}")
    return ", ".join(parts) or "not counted on this GPU"


def _resources(sheet: Sheet, kernel: KernelResources) -> Text:
    text = sheet.say(kernel.name, _NAME).append(f": {counted(kernel.registers, 'register')}")
    text.append(f", {counted(kernel.shared_bytes, 'byte')} shared")
    if kernel.claimed:
        local = f", {counted(kernel.stack_bytes, 'byte')} of stack and spills" if kernel.stack_bytes else ", no spills"
        return text.append(local).append("  reported by the submission's own process", "dim")
    spilt = kernel.spill_store_bytes + kernel.spill_load_bytes
    if spilt:
        return text.append(f", spills {kernel.spill_store_bytes} + {kernel.spill_load_bytes} bytes", "yellow")
    return text.append(f", stack {kernel.stack_bytes} bytes" if kernel.stack_bytes else ", no spills")


_TF32 = {Tf32.OFF: "no TF32", Tf32.DEFAULT: "PyTorch's TF32 default", Tf32.ON: "TF32"}


def baseline_rows(sheet: Sheet, baselines: list[Baseline], kind: CallKind) -> None:
    """Show each baseline's time and the speedup over it of a submission quoted by calls of a `kind`."""
    for number, baseline in enumerate(baselines):
        text = _baseline_name(sheet, baseline).append(": ")
        if baseline.samples is None:
            reason = "not timed" if baseline.finding is None else baseline.finding.message
            text.append_text(sheet.say(reason, 200, "yellow"))
        else:
            text.append(duration(baseline.samples.median_ms, sheet.symbols.micro)).append(", ")
            text.append_text(_speedup(sheet, baseline))
            if baseline.samples.kind is not kind:
                text.append(f"; its {baseline.samples.kind.value} against the submission's {kind.value}", "yellow")
            if baseline.samples.is_host_bound:
                text.append_text(_host(sheet, baseline.samples))
        if baseline.kept:
            text.append("  cached on ", "dim").append_text(sheet.say(baseline.measured_at[:10], 10, "dim"))
        if baseline.samples is not None and baseline.samples.outputs_copied:
            text.append("  outputs copied inside the clock", "yellow")
        sheet.row("" if number else "Baselines", text)


def _host(sheet: Sheet, side: Samples) -> Text:
    host = "waits for the GPU" if side.waits_for_gpu or side.launch_ms is None else None
    return Text(f"; host-bound: host {host or duration(side.launch_ms or 0.0, sheet.symbols.micro)}", "dim")


def _baseline_name(sheet: Sheet, baseline: Baseline) -> Text:
    if baseline.kind is BaselineKind.SUBMISSION:
        return sheet.say(baseline.name or baseline.kind.label, 60)
    text = Text(baseline.kind.label)
    return text if baseline.tf32 is None else text.append(f", {_TF32[baseline.tf32]}")


def _speedup(sheet: Sheet, baseline: Baseline) -> Text:
    low, high, times = baseline.speedup_low, baseline.speedup_high, sheet.symbols.times
    if baseline.speedup is None:
        return Text("no speedup quoted" + ("" if low is None else f"; {interval_text(low, high, times)}"))
    text = Text().append(f"{significant(baseline.speedup)} {times}", "bold")
    if low is not None and high is not None:
        text.append(f"  {interval_text(low, high, times)}", "dim")
    return text if baseline.significant else text.append("; no significant difference")


_NAMES = ("reference", "submission")
_SIDE_STYLES = ("cyan", "green")
_MOST_CELLS = 32
"""Maximum cells of a strip. A side has 20 to 200 samples: more cells would show single calls only."""


class TimeAxis(NamedTuple):
    """A time range in `cells` equal parts."""

    low_ms: float
    high_ms: float
    cells: int

    def place(self, value_ms: float) -> float:
        """Return the position of a time, from 0 at the low end to 1 at the high end, clamped to this range.

        >>> TimeAxis(1.0, 3.0, 4).place(1.5), TimeAxis(1.0, 3.0, 4).place(9.0)
        (0.25, 1.0)
        """
        # Halved before the subtraction: the difference of a card's numbers may overflow.
        width = self.high_ms / 2 - self.low_ms / 2
        if not width > 0:
            return 0.0
        return min(max((value_ms / 2 - self.low_ms / 2) / width, 0.0), 1.0)

    def counts(self, values_ms: Sequence[float]) -> list[int]:
        """Count the values in each cell.

        >>> TimeAxis(0.0, 4.0, 4).counts([0.5, 0.6, 2.0, 4.0])
        [2, 0, 1, 1]
        """
        counts = [0] * self.cells
        for value in values_ms:
            counts[min(int(self.place(value) * self.cells), self.cells - 1)] += 1
        return counts


def own_axis(values_ms: Sequence[float], cells: int) -> TimeAxis:
    """Return an axis from the smallest to the largest of `values_ms`, which is not empty."""
    return TimeAxis(min(values_ms), max(values_ms), cells)


def heights(counts: Sequence[int], levels: int) -> list[int]:
    """Scale counts to 0..`levels`. The largest count has the top level, and no positive count becomes 0.

    >>> heights([0, 1, 50, 100], 8)
    [0, 1, 4, 8]
    """
    most = max(counts, default=0)
    return [math.ceil(count * levels / most) if count else 0 for count in counts]


def show_samples(sheet: Sheet, timing: Timing) -> None:
    """Draw each side from the fastest to the slowest call, then both sides on an axis from zero."""
    runs = ([timing.reference_before, timing.reference_after], [timing.submission])
    sides = [[value for run in side for value in run.samples_ms] for side in runs]
    cells = sheet.width - MARGIN_AND_LABEL
    magnified = min(cells, _MOST_CELLS)
    for number, (name, style, side, values_ms) in enumerate(zip(_NAMES, _SIDE_STYLES, runs, sides, strict=True)):
        sheet.row("" if number else "Samples", _side_text(sheet, name, side, values_ms))
        if values_ms:
            sheet.row("", _strip(sheet, own_axis(values_ms, magnified), values_ms, style))
    together = [value for side in sides for value in side]
    if not together:
        return
    shared = TimeAxis(0.0, max(together), cells)
    sheet.row("From zero", Text(f"to {duration(shared.high_ms, sheet.symbols.micro)}, reference above submission"))
    for style, values_ms in zip(_SIDE_STYLES, sides, strict=True):
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


def _strip(sheet: Sheet, axis: TimeAxis, values_ms: Sequence[float], style: str) -> Text:
    levels = heights(axis.counts(values_ms), len(sheet.symbols.bars) - 1)
    return styled("".join(sheet.symbols.bars[level] for level in levels), style)
