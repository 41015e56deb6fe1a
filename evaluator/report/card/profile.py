"""Profile on screen: the longest kernels, their resources, and hardware counters."""

from rich.text import Text

from evaluator.records import Counters, KernelCounters, KernelResources, KernelUse, Profiling
from evaluator.report.card.roofline import share
from evaluator.report.layout.sheet import Sheet, styled
from evaluator.text import amount, counted, duration

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
            sheet.row("", _kernel_text(sheet, use, profiling.time_us))
        omitted = max(len(profiling.kernels) - _MOST_KERNELS, 0) + profiling.other_kernels
        if omitted:
            sheet.row("", styled(f"and {counted(omitted, 'other')}", "dim"))
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


def _kernel_text(sheet: Sheet, use: KernelUse, whole_us: float) -> Text:
    part = use.time_us / whole_us if whole_us > 0 else 0.0
    text = Text(f"{share(part):>6}  ").append_text(sheet.say(use.name, _NAME))
    text.append(f"  {duration(use.time_us / 1e3, sheet.symbols.micro)}", "dim")
    if use.launches != 1:
        text.append(f" in {use.launches}", "dim")
    return text.append("  own", "green") if use.own else text


def _counters(sheet: Sheet, counters: Counters) -> None:
    if counters.finding is not None:
        sheet.row("Counters", sheet.say(counters.finding.message, 300, "yellow"))
        sheet.row("", styled(f"{sheet.symbols.arrow} ", "dim").append_text(sheet.say(counters.finding.next_step, 400)))
        return
    first = f"the first {counters.launches} kernel runs" if counters.cut else counted(counters.launches, "kernel run")
    sheet.row("Counters", Text(first).append("  of a call that Nsight Compute watched", "dim"))
    for kernel in counters.kernels[:_MOST_KERNELS]:
        sheet.row("", _name(sheet, kernel))
        sheet.row("", Text(f"  {_counters_text(kernel)}"))
    omitted = max(len(counters.kernels) - _MOST_KERNELS, 0) + counters.other_kernels
    if omitted:
        sheet.row("", styled(f"and {counted(omitted, 'other')}", "dim"))


def _name(sheet: Sheet, kernel: KernelCounters) -> Text:
    text = sheet.say(kernel.name, _NAME).append(f"  {duration(kernel.time_us / 1e3, sheet.symbols.micro)}", "dim")
    if kernel.launches != 1:
        text.append(f" in {kernel.launches}", "dim")
    return text.append("  own", "green") if kernel.own else text


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
