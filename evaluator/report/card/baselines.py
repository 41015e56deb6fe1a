"""Baselines on screen: one row each, with the submission's speedup."""

from rich.text import Text

from evaluator.records import Baseline, BaselineKind, CallKind, Samples, Tf32
from evaluator.report.layout.sheet import Sheet
from evaluator.text import duration, ratio, significant

_NAMES = {
    BaselineKind.EAGER: "eager",
    BaselineKind.COMPILE: "torch.compile",
    BaselineKind.COMPILE_MAX_AUTOTUNE: "torch.compile, max-autotune",
}
_TF32 = {Tf32.OFF: "no TF32", Tf32.DEFAULT: "PyTorch's TF32 default", Tf32.ON: "TF32"}


def baseline_rows(sheet: Sheet, baselines: list[Baseline], kind: CallKind) -> None:
    """Show each baseline's time and the speedup over it of a submission quoted by calls of a `kind`."""
    for number, baseline in enumerate(baselines):
        text = _name(sheet, baseline).append(": ")
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


def _name(sheet: Sheet, baseline: Baseline) -> Text:
    if baseline.kind is BaselineKind.SUBMISSION:
        return sheet.say(baseline.name or "another submission", 60)
    text = Text(_NAMES[baseline.kind])
    return text if baseline.tf32 is None else text.append(f", {_TF32[baseline.tf32]}")


def _speedup(sheet: Sheet, baseline: Baseline) -> Text:
    low, high, times = baseline.speedup_low, baseline.speedup_high, sheet.symbols.times
    if baseline.speedup is None:
        if low is None:
            return Text("no speedup quoted")
        bounds = f"above {ratio(low)} {times}" if high is None else f"between {ratio(low)} and {ratio(high)} {times}"
        return Text(f"no speedup quoted; {bounds}")
    text = Text().append(f"{significant(baseline.speedup)} {times}", "bold")
    if low is not None and high is not None:
        text.append(f"  between {ratio(low)} and {ratio(high)} {times}", "dim")
    return text if baseline.significant else text.append("; no significant difference")
