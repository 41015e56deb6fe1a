"""Evidence of one card as texts and drawings for a page, each of a bounded length."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from markupsafe import Markup

from evaluator.protocol.submission_files import LONGEST_LABEL, parts, place_of
from evaluator.records import Finding, Scorecard, Status, Timing
from evaluator.report.card.measurement import (
    CaseRow,
    case_rows,
    cases_sentence,
    measured,
    score_text,
    shows_cases,
)
from evaluator.report.page.charts import samples_chart
from evaluator.text import counted, duration, one_line, printable, speedup_text

_MOST_FRAMES = 8
_MOST_FINDINGS = 20
_MOST_CASES = 200
_LONGEST_CODE = 200_000
_LONGEST_TEXT = 2000
_LONGEST_OUTPUT = 20_000


class PageCode(NamedTuple):
    """Source text for a page, and the number of characters beyond the limit."""

    text: str
    left_out: int

    @property
    def numbers(self) -> str:
        """Numbers of the lines. Each of several files begins at 1, after a line without number."""
        return "\n".join(_numbers(self.text))

    @property
    def remark(self) -> str:
        """Remark about the omitted characters, if any."""
        return f"{counted(self.left_out, 'more character')} omitted; see the card." if self.left_out else ""


class Note(NamedTuple):
    """A finding. `location` is empty for a finding without a line."""

    code: str
    location: str
    message: str
    next_step: str


class CompilerError(NamedTuple):
    """An error of the compiler: location, message, and line of code."""

    location: str
    message: str
    line: str


class PageCases(NamedTuple):
    """Cases of a card: the score of a correct card, a sentence about all cases, and the first rows."""

    lines: list[str] = []
    rows: list[CaseRow] = []


class Detail(NamedTuple):
    """Collapsed details below a submission's row. `samples_chart` is the chart of the samples, if any."""

    code: PageCode
    notes: list[Note]
    frames: list[CompilerError] = []
    machine_code: str = ""
    times: str = ""
    cases: PageCases = PageCases()
    samples_chart: Markup = Markup("")
    output: str = ""

    @property
    def size(self) -> int:
        """Length in characters before escaping."""
        texts = [text for note in self.notes for text in note[2:]] + [text for frame in self.frames for text in frame]
        cells = [cell for row in self.cases.rows for cell in row]
        drawn = self.code.text, self.machine_code, self.samples_chart, self.output
        return sum(map(len, (*drawn, *texts, *cells)))


def code_of(source: str, longest: int = _LONGEST_CODE) -> PageCode:
    """Return a source with at most `longest` characters."""
    return PageCode(printable(source[:longest]), max(0, len(source) - longest))


def detail_of(card: Scorecard) -> Detail:
    """Return the details of a card."""
    findings = ([card.reason] if card.reason else []) + list(card.findings)
    source = card.submission.source
    return Detail(
        code=code_of(source),
        notes=[_note(source, finding) for finding in findings[:_MOST_FINDINGS]],
        frames=list(_frames(card)),
        machine_code="" if card.machine_code is None else _text(card.machine_code.text),
        times="" if card.timing is None else _times(card, card.timing),
        cases=_cases(card),
        samples_chart=Markup("") if card.timing is None else samples_chart(card.timing),
        output=printable(card.output.text[:_LONGEST_OUTPUT]),
    )


def _cases(card: Scorecard) -> PageCases:
    if not shows_cases(card):
        return PageCases()
    lines = [f"Score: {score_text(card.score)}."] if card.score is not None and card.status is Status.CORRECT else []
    lines.append(f"Cases: {cases_sentence(card.cases)}.")
    if len(card.cases) > _MOST_CASES:
        lines.append(f"The first {_MOST_CASES} of {len(card.cases)} cases:")
    return PageCases(lines, case_rows(card.cases)[:_MOST_CASES])


def _note(source: str, finding: Finding) -> Note:
    location = "" if finding.line is None else _line_label(source, finding.line)
    return Note(one_line(finding.code, 20), location, _text(finding.message), _text(finding.next_step))


def _line_label(source: str, line: int) -> str:
    return one_line(place_of(source, line).label, LONGEST_LABEL)


def _numbers(source: str) -> Iterator[str]:
    lines = source.count("\n") + (not source.endswith("\n"))
    marks = [part.lines_before for part in parts(source)]
    for mark, following in itertools.pairwise([0, *marks, lines + 1]):
        yield from [""] * bool(mark)
        yield from map(str, range(1, following - mark))


def _text(text: str) -> str:
    return printable(text[:_LONGEST_TEXT])


def _frames(card: Scorecard) -> Iterator[CompilerError]:
    for error in [] if card.build is None else card.build.errors[:_MOST_FRAMES]:
        line = error.submission_line
        submission_location = None if line is None else _line_label(card.submission.source, line)
        location = submission_location or f"{one_line(error.file, 80)}, line {error.line}"
        yield CompilerError(location, _text(error.message), one_line(error.source_line[:_LONGEST_TEXT], 240))


def _times(card: Scorecard, timing: Timing) -> str:
    reference = _median(timing.reference_median_ms, timing.reference_low_ms, timing.reference_high_ms)
    submission = _median(timing.submission_median_ms, timing.submission_low_ms, timing.submission_high_ms)
    text = f"Medians with 95 % intervals: reference {reference}, submission {submission}."
    if timing.speedup is not None:
        text = f"{text} Speedup {speedup_text(timing.speedup, timing.speedup_low, timing.speedup_high)}."
    return f"{text} Measured: {measured(card)}."


def _median(median_ms: float, low_ms: float | None, high_ms: float | None) -> str:
    between = "" if low_ms is None or high_ms is None else f" ({duration(low_ms)} to {duration(high_ms)})"
    return f"{duration(median_ms)}{between}"
