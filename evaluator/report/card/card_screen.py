"""Screen of one scorecard: the verdict first, then the evidence, then the next steps.

Text of a submission, its compiler or its process passes through `Sheet.say` or `printable`, and is never parsed as
markup.
"""

import math
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from evaluator.files.card_files import INTERVALS_REMARK
from evaluator.findings import Code
from evaluator.protocol.submission_files import LONGEST_LABEL, place_of
from evaluator.records import (
    SCHEMA_VERSION,
    Check,
    CheckRule,
    Finding,
    GradeMode,
    Scorecard,
    SizeName,
    Status,
    TensorCheck,
    Timing,
    ValuesRule,
    Weights,
    WeightsGraded,
)
from evaluator.report.card.evidence import baseline_rows, profiling_rows, roofline_row, show_roofline, show_samples
from evaluator.report.card.excerpts import lines_of, printed_rows, show_diagnostic, show_line
from evaluator.report.card.measurement import (
    calls_line,
    case_lines,
    cases_sentence,
    clocks_line,
    host_line,
    inputs_line,
    interval_text,
    samples_of,
    score_text,
    shows_cases,
)
from evaluator.report.layout.sheet import MARGIN_AND_LABEL, Sheet, styled
from evaluator.text import counted, duration, printable, side_by_side, significant

_MOST_FINDINGS = 3
_MOST_ERRORS = 3
_MOST_CASES = 16
_MOST_SIZES = 3
_LONGEST_STEP = 320
"""More characters than any step of the table of findings. Other steps may quote the submission at any length."""
_MOST_LOG_LINES = 6
_MOST_PRINTED = 40
_PRINTED_WITH_A_FAILURE = 12
_PASSED = frozenset({Status.CORRECT})
_NO_VERDICT = frozenset({Status.INCONCLUSIVE, Status.INFRA_ERROR})


def render_card(
    card: Scorecard, console: Console, written_to: Path | None = None, *, with_samples: bool = False
) -> None:
    """Print `card` on `console`, with the file; `with_samples` adds the distribution of the samples."""
    sheet = Sheet(console)
    _verdict(sheet, card)
    _failing_line(sheet, card)
    sheet.blank()
    _subject(sheet, card)
    _correctness(sheet, card)
    if card.status is Status.CORRECT:
        _time(sheet, card)
    _cases(sheet, card, _MOST_CASES if not with_samples else len(card.cases))
    if card.roofline is not None:
        roofline_row(sheet, card.roofline)
    if card.profiling is not None:
        profiling_rows(sheet, card.profiling)
    if card.machine_code is not None and card.machine_code.text:
        sheet.row("Machine code", sheet.say(card.machine_code.text, 320))
    printed_rows(sheet, card.output, _lines_printed(card, with_samples=with_samples))
    if with_samples and card.timing is not None:
        show_samples(sheet, card.timing)
        if card.roofline is not None:
            show_roofline(sheet, card.roofline, card.timing)
    _findings(sheet, card)
    _scorecard(sheet, card, written_to)
    sheet.print()


def _lines_printed(card: Scorecard, *, with_samples: bool) -> int:
    """Return the number of printed lines to show. After a failure, printed lines may explain it."""
    if with_samples:
        return _MOST_PRINTED
    return 0 if card.status is Status.CORRECT else _PRINTED_WITH_A_FAILURE


def _verdict(sheet: Sheet, card: Scorecard) -> None:
    if card.status in _PASSED:
        mark, style = sheet.symbols.right, "bold green"
    elif card.status in _NO_VERDICT:
        mark, style = sheet.symbols.unsure, "bold yellow"
    else:
        mark, style = sheet.symbols.wrong, "bold red"
    word = styled(card.status.value.replace("_", " "), style)
    sheet.paragraph(styled(mark, style), word.append("  ").append_text(_reason(sheet, card)))


def _reason(sheet: Sheet, card: Scorecard) -> Text:
    if card.reason is not None:
        return sheet.say(card.reason.message, 320)
    if card.status is Status.CORRECT and card.mode is GradeMode.CHECK:
        return sheet.say("the checked calls agree with the reference; no time was measured (mode check)")
    if card.status is Status.CORRECT:
        return sheet.say("all calls agree with the reference")
    return sheet.say("the scorecard gives no reason")


def _failing_line(sheet: Sheet, card: Scorecard) -> None:
    if card.status is Status.BUILD_ERROR and not _names_its_line(card) and _compiler_messages(sheet, card):
        return
    line = card.reason.line if card.reason is not None else None
    if line is not None and 1 <= line <= len(lines_of(card.submission.source)):
        sheet.blank()
        if (location := place_of(card.submission.source, line)).path is not None:
            sheet.paragraph(Text(), sheet.say(f"{location.label}:", LONGEST_LABEL, "bold"))
        show_line(sheet, card.submission.source, line, caret=_caret(card.reason, card.submission.source, line))


def _caret(reason: Finding | None, source: str, line: int) -> int | None:
    """Return the cell (from 0) of the column that a kernel's compiler named; None without a column in the line."""
    column = None if reason is None else reason.details.get("column")
    text = lines_of(source)[line - 1]
    return cell_len(printable(text[: column - 1])) if isinstance(column, int) and 1 <= column <= len(text) + 1 else None


def _names_its_line(card: Scorecard) -> bool:
    """Whether the reason has a line of the submission, while the compiler's line is in generated code."""
    return card.reason is not None and card.reason.code == Code.BINDING.value and card.reason.line is not None


def _compiler_messages(sheet: Sheet, card: Scorecard) -> bool:
    failed, errors = ([], []) if card.build is None else (card.build.failed, card.build.errors)
    for diagnostic in errors[:_MOST_ERRORS]:
        sheet.blank()
        show_diagnostic(sheet, card.submission.source, diagnostic)
    if len(errors) > _MOST_ERRORS:
        sheet.blank()
        more = counted(len(errors) - _MOST_ERRORS, "more error")
        sheet.paragraph(Text(), styled(f"and {more}; all are in the scorecard, under build.units", "dim"))
    if failed and not errors and not (card.reason is not None and failed[0].log.strip() == card.reason.message):
        _end_of_log(sheet, failed[0].log)
    return bool(failed)


def _end_of_log(sheet: Sheet, log: str) -> None:
    """Show the end of a log without line numbers, such as a linker's."""
    lines = [line for line in printable(log[-10_000:], sheet.encoding).splitlines() if line.strip()]
    if lines:
        sheet.blank()
    for line in lines[-_MOST_LOG_LINES:]:
        sheet.line(styled(f"  {sheet.symbols.rule} {line}", "dim"))


def _subject(sheet: Sheet, card: Scorecard) -> None:
    subject = sheet.say(card.submission.name, 80).append(" for ").append_text(sheet.say(card.problem.name, 80))
    few = len(card.sizes) <= _MOST_SIZES
    word = "size" if set(card.sizes) <= set(SizeName) else "case"
    sizes = f"{word} {' and '.join(card.sizes)}" if few else f"{card.problem.size} and {len(card.sizes) - 1} more cases"
    subject.append(f", {sizes}, on {card.device.kind.value}")
    if card.mode is not GradeMode.FULL:
        subject.append(f", mode {card.mode.value}")
    name = Text("(").append_text(sheet.say(card.device.name, 60)).append(")")
    if subject.cell_len + 1 + name.cell_len <= sheet.text_width - MARGIN_AND_LABEL:
        sheet.row("Submission", subject.append(" ").append_text(name))
    else:  # A processor's long name has its own line.
        sheet.row("Submission", subject)
        sheet.row("", name)


def _correctness(sheet: Sheet, card: Scorecard) -> None:
    if not card.checks:
        return
    wrong = [check for check in card.checks if not check.ok]
    calls = counted(len(card.checks), "call")
    summary = styled(f"{len(wrong)} of {calls} wrong", "red") if wrong else Text(f"{calls} checked")
    ratios = [tensor.error_ratio for check in card.checks for tensor in check.tensors]
    finite = [ratio for ratio in ratios if ratio is not None]
    if any(finite):
        summary.append(f", worst error {significant(max(finite))} {sheet.symbols.times} what is allowed")
    elif finite and not wrong:
        summary.append(", every value exact")
    if card.problem.check is CheckRule.INSTEAD:
        summary.append(" by the problem's own check")
    if card.values is ValuesRule.OWN:
        summary.append(", for the problem's own input values alone")
    sheet.row("Correctness", summary)
    if wrong:
        _first_mismatch(sheet, wrong[0])
    elif (power := _power(card)) is not None:
        sheet.row("", Text(f"a wrong answer would have been off by {power} {sheet.symbols.times} what is allowed"))
    if card.is_disputed:
        said = "correct" if card.benchmark_correct else "wrong"
        sheet.row(card.benchmark_rule.label, Text(f"{said} by its own rule"))
    if card.weights is not None and card.weights.graded is not WeightsGraded.NONE:
        sheet.row("Weights", _weights(sheet, card.weights))


def _power(card: Scorecard) -> str | None:
    """Return how far a surely wrong answer of the weakest output would have been, in its best call; None if unknown."""
    powers: dict[str, float] = {}
    for tensor in (tensor for check in card.checks for tensor in check.tensors if tensor.power is not None):
        powers[tensor.path] = max(powers.get(tensor.path, 0.0), tensor.power or 0.0)
    least = min(powers.values(), default=math.inf)
    if not powers or not math.isfinite(least):
        return None
    return f"more than {_MOST_POWER:,}" if least > _MOST_POWER else significant(least)


def _weights(sheet: Sheet, weights: Weights) -> Text:
    if weights.graded is WeightsGraded.CHANGING:
        copied = f", of which the runner copied {weights.copied}" if weights.copied else ""
        return Text(f"{counted(weights.changed, 'parameter')} changed from call to call{copied}")
    return Text("frozen: ").append_text(sheet.say(weights.reason or "", 320))


_MOST_POWER = 1000
_NOT_LIKE = "not quoted: only the reference's weights changed from call to call"


def _first_mismatch(sheet: Sheet, check: Check) -> None:
    tensor = next((tensor for tensor in check.tensors if not tensor.ok), None)
    if tensor is None:
        return  # The verdict already states other failures than values.
    sheet.row("", Text("first on inputs ").append_text(sheet.say(check.profile.replace("_", " "), 60)).append(":"))
    sheet.row("", _tensor(sheet, tensor))
    if tensor.first_mismatch is not None:
        text = sheet.say(f"at {tensor.first_mismatch.index}: expected", 80).append(" ")
        text.append_text(sheet.say(tensor.first_mismatch.expected, 32, "green"))
        text.append(", got ").append_text(sheet.say(tensor.first_mismatch.actual, 32, "red"))
        sheet.row("", text)


def _tensor(sheet: Sheet, tensor: TensorCheck) -> Text:
    text = sheet.say(f"{tensor.path}, {tensor.dtype} {tensor.shape}", 120)
    if tensor.mismatches:
        text.append(f": {counted(tensor.mismatches, 'element')} {'differs' if tensor.mismatches == 1 else 'differ'}")
    if tensor.nonfinite:
        text.append(f", {tensor.nonfinite} NaN or infinite")
    return text


def _time(sheet: Sheet, card: Scorecard) -> None:
    if card.timing is None:
        reason = "in mode check" if card.mode is GradeMode.CHECK else f"on {card.device.kind.value}"
        sheet.row("Time", Text(f"not measured {reason}"))
        return
    timing = card.timing
    calls = samples_of([timing.submission])
    reference, submission = side_by_side(timing.reference_median_ms, timing.submission_median_ms, sheet.symbols.micro)
    room = max(len(reference), len(submission))
    inputs = "" if (line := inputs_line(card.l2)) is None else f"  {line}"
    sheet.row("Time", Text(f"reference   {reference:>{room}}").append(inputs, style="dim"))
    sheet.row("", Text(f"submission  {submission:>{room}}").append(f"  median of {calls}", style="dim"))
    if timing.mixes_kinds:
        sheet.row("", styled(calls_line(timing), "yellow"))
    if (host := host_line(timing, sheet.symbols.micro)) is not None:
        sheet.row("Host", Text(host))
    if (clocks := clocks_line(timing)) is not None:
        sheet.row("Clocks", styled(clocks, "dim"))
    sheet.row("Speedup", _speedup(sheet, timing) if card.has_like_weights else Text(_NOT_LIKE))
    if card.schema_version != SCHEMA_VERSION and timing.speedup_low is not None:
        sheet.row("", styled(f"schema version {card.schema_version}: {INTERVALS_REMARK}", "yellow"))
    baseline_rows(sheet, card.baselines, timing.submission.kind)


def _cases(sheet: Sheet, card: Scorecard, most: int) -> None:
    if not shows_cases(card):
        return
    if card.status is Status.CORRECT and card.score is not None:
        sheet.row("Score", Text(score_text(card.score, sheet.symbols.times)))
    sheet.row("Cases", Text(cases_sentence(card.cases, sheet.symbols.times)))
    for line in case_lines(card.cases, sheet.symbols.times)[:most]:
        sheet.row("", Text(line))
    if len(card.cases) > most:
        sheet.row("", styled(f"and {len(card.cases) - most} more in the scorecard", "dim"))


def _speedup(sheet: Sheet, timing: Timing) -> Text:
    between = interval_text(timing.speedup_low, timing.speedup_high, sheet.symbols.times)
    interval = None if timing.speedup_low is None else f"{between} (95 % sure)"
    if timing.speedup is None:
        if timing.speedup_high is None and timing.resolution_ms >= timing.submission_median_ms:
            least = duration(timing.resolution_ms, sheet.symbols.micro)
            return Text(f"not quoted: the clock's error, {least}, exceeds the submission's time")
        return Text(f"not quoted: its interval is {interval or between}{_direction(timing)}")
    text = styled(f"{significant(timing.speedup)} {sheet.symbols.times}", "bold")
    if interval is not None:
        text.append(f"  {interval}", style="dim")
    if timing.significant is False:
        return text.append("; no significant difference")
    if timing.speedup < 1:
        text.append("  slower than the reference", style="dim")
    return text


def _direction(timing: Timing) -> str:
    if not timing.significant or timing.speedup_low is None:
        return ""
    return f"; certainly {'faster' if timing.speedup_low > 1 else 'slower'}"


def _findings(sheet: Sheet, card: Scorecard) -> None:
    if card.reason is not None:
        sheet.row("Next", sheet.say(card.reason.next_step, _LONGEST_STEP))
        sheet.row("", sheet.say(f"warpgrade explain {card.reason.code}", 60, "dim"))
    others = card.remarks
    for number, finding in enumerate(others[:_MOST_FINDINGS]):
        sheet.row(
            "" if number else "Findings",
            sheet.say(finding.code, 8, "yellow").append(" ").append_text(sheet.say(finding.message, 160)),
        )
        sheet.row("", styled(f"{sheet.symbols.arrow} ", "dim").append_text(sheet.say(finding.next_step, _LONGEST_STEP)))
    if len(others) > _MOST_FINDINGS:
        more = counted(len(others) - _MOST_FINDINGS, "more finding")
        sheet.row("", styled(f"and {more} in the scorecard", "dim"))


def _scorecard(sheet: Sheet, card: Scorecard, written_to: Path | None) -> None:
    if written_to is not None:
        took = styled(f"  after {duration(card.wall_s * 1e3, sheet.symbols.micro)}", "dim")
        sheet.row("Scorecard", sheet.say(written_to, 400).append_text(took))
