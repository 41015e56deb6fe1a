"""Show where a call's time goes: the kernels that took longest, and what each takes of a multiprocessor."""

from rich.text import Text

from evaluator.records import KernelResources, KernelUse, Profiling
from evaluator.report.roofline import share
from evaluator.report.sheet import Sheet, styled
from evaluator.report.text import counted, duration

_MOST_KERNELS = 5
_MOST_RESOURCES = 4
_NAME = 48


def profiling_rows(sheet: Sheet, profiling: Profiling) -> None:
    """Say what ran in a profiled call; all of it is what the submission's own process saw."""
    if profiling.finding is not None:
        sheet.row("Profile", sheet.say(profiling.finding.message, 200, "yellow"))
    else:
        _summary(sheet, profiling)
        for use in profiling.kernels[:_MOST_KERNELS]:
            sheet.row("", _use(sheet, use, profiling.time_us))
        rest = max(len(profiling.kernels) - _MOST_KERNELS, 0) + profiling.other_kernels
        if rest:
            sheet.row("", styled(f"and {counted(rest, 'other')}", "dim"))
    for number, each in enumerate(profiling.resources[:_MOST_RESOURCES]):
        sheet.row("" if number else "Compiled", _resources(sheet, each))


def _summary(sheet: Sheet, profiling: Profiling) -> None:
    on_gpu = any(use.own is not None for use in profiling.kernels)
    text = Text(f"{counted(profiling.launches, 'kernel run' if on_gpu else 'operation')}, ")
    text.append(duration(profiling.time_us / 1e3, sheet.symbols.micro))
    if profiling.own_share is not None:
        text.append(f", {share(profiling.own_share)} of it in own kernels")
    sheet.row("Profile", text.append("  as its own process says", "dim"))


def _use(sheet: Sheet, use: KernelUse, whole_us: float) -> Text:
    part = use.time_us / whole_us if whole_us > 0 else 0.0
    text = Text(f"{share(part):>6}  ").append_text(sheet.say(use.name, _NAME))
    text.append(f"  {duration(use.time_us / 1e3, sheet.symbols.micro)}", "dim")
    if use.launches != 1:
        text.append(f" in {use.launches}", "dim")
    return text.append("  own", "green") if use.own else text


def _resources(sheet: Sheet, kernel: KernelResources) -> Text:
    text = sheet.say(kernel.name, _NAME).append(f": {counted(kernel.registers, 'register')}")
    text.append(f", {counted(kernel.shared_bytes, 'byte')} shared")
    spilt = kernel.spill_store_bytes + kernel.spill_load_bytes
    if spilt:
        return text.append(f", spills {kernel.spill_store_bytes} + {kernel.spill_load_bytes} bytes", "yellow")
    return text.append(f", stack {kernel.stack_bytes} bytes" if kernel.stack_bytes else ", no spills")
