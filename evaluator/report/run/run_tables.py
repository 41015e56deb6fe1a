"""Report of many submissions: for a terminal, as Markdown, CSV or JSON."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from evaluator.records import DeviceKind
from evaluator.report.layout.markup import code_span, folded
from evaluator.report.run.both_rules import disputed_document, disputed_rows, rates_by_both, remark_of_both
from evaluator.report.run.exports import ExplainedSample, no_formula
from evaluator.report.run.intervals import NOTHING, Estimate, between, document_of, factor, percent, percentage
from evaluator.report.run.summary import REFUSED, THRESHOLDS, Device, Measured, Section, Summary, case_table
from evaluator.text import counted, one_line

if TYPE_CHECKING:
    from rich.console import Console

_LONGEST = 300
"""Upper bound on the length of a name or a remark."""
MOST_FAILED = 20
"""Submissions listed as not correct."""
_MOST_BODIES = 10
_BY_PROBLEM = "By problem"
_BY_BOTH, _DISPUTED = "By both rules", "Where the rules disagree"
_OF_USERS = frozenset({_BY_PROBLEM, _DISPUTED})
"""Tables whose first column has names from users."""
OF_WHOLE_LEVELS = "Of all problems of a level, as KernelBench counts"
_AT_ONCE = frozenset({OF_WHOLE_LEVELS, _BY_BOTH, _DISPUTED})
_REASON = 160
_HEADLINE = frozenset({"built", "correct (fast_0)", "fast_1", "fast_2", "speedup if correct"})
_IN_TABLES = (1.0, 1.5, 2.0)
"""Values of p in the table by problem, for lack of space; CSV and JSON have all."""


class TextTable(NamedTuple):
    """A table as text."""

    title: str
    header: list[str]
    rows: list[list[str]]


def document(sections: list[Section]) -> dict[str, Any]:
    """Return the document of `--json`."""
    return {
        "version": 1,
        "devices": [
            {"device": section.device.kind, "name": section.device.name, "timed": section.device.timed}
            | _rates_document(section)
            | {
                "by_benchmark": section.by_benchmark and _rates_document(section.by_benchmark),
                "disputed": [disputed_document(sample) for sample in section.disputed],
                "cases": [case._asdict() for case in section.cases],
            }
            for section in sections
        ],
    }


def _rates_document(section: Section) -> dict[str, Any]:
    groups = ("total", "levels", "problems", "whole_levels")
    return {name: document_of(getattr(section, name)) for name in groups}


def csv_text(sections: list[Section]) -> str:
    """Return the text of `--csv`: a row for each device, each of its levels and each problem.

    Problem names come from users; a name that a spreadsheet would parse as a formula is quoted.
    """
    ks = sorted({k for section in sections for k in section.total.pass_at})
    numbers = ["built", "correct", *(f"fast_{p:g}" for p in THRESHOLDS), *(f"pass@{k}" for k in ks)]
    numbers += ["speedup", "speedup_or_1"]
    buffer = io.StringIO()
    table = csv.writer(buffer, lineterminator="\n")
    header = ["device", "device_name", "group", "name", "samples", "problems", "unquoted", "refused"]
    table.writerow(header + [f"{name}{end}" for name in numbers for end in ("", "_low", "_high")])
    for section in sections:
        for group, name, summary in _groups(section):
            values = [summary.built, summary.correct, *(summary.fast[p] for p in THRESHOLDS)]
            values += [*(summary.pass_at.get(k) for k in ks), summary.speedup, summary.speedup_or_1]
            cells = [cell for value in values for cell in (value or (None, None, None))]
            counts = [summary.samples, summary.problems, summary.unquoted, summary.statuses.get(REFUSED, 0)]
            names = map(no_formula, (section.device.kind, section.device.name, group, name))
            table.writerow([*names, *counts, *cells])
    return buffer.getvalue()


def markdown(sections: list[Section], failed: Sequence[ExplainedSample] = ()) -> str:
    """Return the text of `--markdown`. Of `failed`, only the listed submissions need reason and body."""
    parts = list(map(_markdown, sections)) or ["Nothing to report.\n"]
    if failed:
        parts.append("\n".join(["## Not correct", "", *_markdown_failed(failed), *_omitted_line(failed), ""]))
    return "\n".join(parts)


def _markdown_failed(failed: Sequence[ExplainedSample]) -> Iterator[str]:
    """Yield a table of the submissions that are not correct, and the feedback on the first ones, folded.

    Text of submissions stands in code, where a host links no mention and no address.
    """
    yield from ("| submission | problem | status | reason |", "|---|---|---|---|")
    for sample, message, *_ in failed[:MOST_FAILED]:
        reason = code_span(" ".join(filter(None, (sample.reason, message))), _REASON)
        cells = (code_span(sample.name), code_span(sample.problem), markdown_text(sample.status_text), reason)
        yield f"| {' | '.join(cells)} |"
    yield ""
    for sample, _, body, _ in failed[:_MOST_BODIES]:
        if body:
            yield from folded(f"{sample.problem}/{sample.name}: {sample.status_text}", body)


def _markdown(section: Section) -> str:
    lines = [f"## {markdown_text(_title(section))}", "", "\n\n".join(_remarks(section)), ""]
    for title, header, rows in _tables(section):
        # The names of problems come from users.
        cells = [[code_span(row[0]) if title in _OF_USERS else row[0], *row[1:]] for row in rows]
        lines += [f"### {title}", "", *markdown_table(header, cells)]
    return "\n".join(lines)


def markdown_table(header: list[str], rows: list[list[str]]) -> list[str]:
    """Return the lines of a table in Markdown, and an empty line."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def markdown_text(text: str) -> str:
    """Escape Markdown in a name."""
    text = one_line(text, 200).replace("\\", "\\\\")
    for mark in "|<>&*_`[]":
        text = text.replace(mark, f"\\{mark}" if mark not in "<>&" else {"<": "&lt;", ">": "&gt;", "&": "&amp;"}[mark])
    return text


def render(sections: list[Section], console: "Console", failed: Sequence[ExplainedSample] = ()) -> None:
    """Print the report on a terminal."""
    from rich.text import Text

    encoding = console.encoding

    def line(text: str, style: str = "") -> None:
        console.print(Text(one_line(text, _LONGEST, encoding), style))

    for section in sections:
        line(_title(section), "bold")
        for remark in _remarks(section):
            line(remark)
        render_tables(_tables(section), console)
    if not sections:
        line("Nothing to report.")
    if failed:
        line("Not correct", "bold")
        _render_failed(failed, console)
        for text in _omitted_line(failed):
            line(text)


def render_tables(tables: Iterable[TextTable], console: "Console") -> None:
    """Print tables. The first column may wrap; the others are right-aligned."""
    from rich.text import Text

    from evaluator.report.layout.markup import table_lines

    for table in tables:
        console.print(Text(table.title, "bold"))
        header, *rows = [
            [one_line(cell, _LONGEST, console.encoding) for cell in row] for row in (table.header, *table.rows)
        ]
        for number, line in enumerate(table_lines(header, rows, console.width)):
            console.print(Text(line, "" if number else "bold"), soft_wrap=True)
        console.print()


def _render_failed(failed: Sequence[ExplainedSample], console: "Console") -> None:
    from evaluator.report.layout.sheet import Sheet, styled

    sheet = Sheet(console)
    for sample, message, *_ in failed[:MOST_FAILED]:
        text = sheet.say(f"{sample.problem}/{sample.name}" if sample.problem else sample.name, 120)
        text.append_text(styled(f"  {sample.status_text}  ", "red"))
        text.append_text(sheet.say(" ".join(filter(None, (sample.reason, message))), _LONGEST))
        sheet.paragraph(styled(sheet.symbols.wrong, "red"), text)
    sheet.print()


def _omitted_line(failed: Sequence[ExplainedSample]) -> list[str]:
    omitted = len(failed) - MOST_FAILED
    return [f"and {omitted} more; --html FILE lists all"] if omitted > 0 else []


class SectionText(NamedTuple):
    """One device's section as text: title, remarks, the most important rates with intervals, and tables.

    A page shows the `tables` at once, and the `further` tables folded.
    """

    title: str
    remarks: list[str]
    headline: list[list[str]]
    tables: list[TextTable]
    further: list[TextTable]


def described(section: Section) -> SectionText:
    """Return a section as text, for a page, which has an own table of problems."""
    tables = [table for table in _tables(section) if table.title != _BY_PROBLEM]
    headline = [fact for fact in _facts(section.total) if fact[0] in _HEADLINE]
    first = [table for table in tables if table.title in _AT_ONCE]
    further = [table for table in tables if table.title not in _AT_ONCE]
    return SectionText(_title(section), _remarks(section), headline, first, further)


def title_of(device: Device) -> str:
    """Return kind and name of a device, and the mode if it measures no time."""
    name = f" ({device.name})" if device.name else ""
    return f"{device.kind}{name}{_mode(device)}"


def _title(section: Section) -> str:
    total = section.total
    return f"{title_of(section.device)}: {counted(total.samples, 'submission')} to {counted(total.problems, 'problem')}"


def _mode(device: Device) -> str:
    """Return a note on mode `check`: the only reason why a device with a clock measures no time."""
    is_check = not device.timed and device.kind != DeviceKind.EMULATED.value
    return ", mode check" if is_check else ""


def _remarks(section: Section) -> list[str]:
    total = section.total
    parts = [f"{count} {status}" for status, count in sorted(total.statuses.items(), key=lambda item: -item[1])]
    remarks = [", ".join(parts)]
    if refused := total.statuses.get(REFUSED, 0):
        single = refused == 1
        remarks.append(
            f"{counted(refused, 'refused input')} {'counts' if single else 'count'} as not correct; "
            "refused.jsonl in the run folder has the reasons."
        )
    if total.wrong_on_other_values:
        single = total.wrong_on_other_values == 1
        remarks.append(
            f"{total.wrong_on_other_values} of the wrong results {'is' if single else 'are'} correct on the problem's "
            "own values (C422): --values own grades by these alone."
        )
    remarks += remark_of_both(section)
    remarks += _measured(total.measured)
    if not section.device.timed:
        remarks.append("Mode check measures no time." if _mode(section.device) else "emulated measures no time.")
    elif total.unquoted:
        remarks.append(
            f"{counted(total.unquoted, 'correct submission')} without a speedup: the interval is too wide (T303), or "
            "the weights could not change (C421)."
        )
    return remarks


def _measured(measured: Measured) -> Iterator[str]:
    """Yield the circumstances of the speedups; a run with single calls alone needs no remark."""
    calls = [
        f"{count} {text}"
        for count, text in (
            (measured.windows, "in windows of calls"),
            (measured.single, "in single calls"),
            (measured.mixed, "with windows of one side and single calls of the other"),
        )
        if count
    ]
    inputs = [
        f"inputs {text} in L2 in {count}" for count, text in ((measured.cold, "cold"), (measured.warm, "warm")) if count
    ]
    if measured.windows or measured.mixed or inputs:
        yield f"Speedups: {'; '.join([', '.join(calls), *inputs])}."
    if measured.host_bound:
        yield f"{counted(measured.host_bound, 'speedup')} with a host-bound side: its calls wait for the host."


def _tables(section: Section) -> Iterator[TextTable]:
    total = section.total
    yield TextTable("All", ["", "value", "95 % interval"], list(_facts(total)))
    thresholds = _IN_TABLES if section.device.timed else ()
    if section.disputed:
        yield TextTable(_BY_BOTH, *rates_by_both(section, thresholds))
        yield TextTable(_DISPUTED, *disputed_rows(section, MOST_FAILED))
    header = ["samples", "built", "correct", *(f"fast_{p:g}" for p in thresholds), *(["speedup"] if thresholds else [])]
    if any(level.tried < level.problems for level in section.whole_levels.values()):
        rows = [
            [
                f"level {number} ({level.tried} of {level.problems} tried)",
                *(percent(level.fast[p]) for p in (0.0, *thresholds)),
                between(level.correct, percentage),
            ]
            for number, level in section.whole_levels.items()
        ]
        yield TextTable(OF_WHOLE_LEVELS, ["", "correct", *(f"fast_{p:g}" for p in thresholds), "95 % of correct"], rows)
    for title, groups in (
        ("By level", {f"level {level}": summary for level, summary in section.levels.items()}),
        (_BY_PROBLEM, section.problems),
    ):
        rows = []
        for name, summary in groups.items():
            shares = [summary.built, summary.correct, *(summary.fast[p] for p in thresholds)]
            speedup = [_times(summary.speedup)] if thresholds else []
            rows.append([name, str(summary.samples), *map(percent, shares), *speedup])
        if rows:  # refused inputs alone have neither level nor problem
            yield TextTable(title, ["", *header], rows)
    if section.cases:
        yield TextTable("By case", *case_table(section.cases))


def _facts(summary: Summary) -> Iterator[list[str]]:
    yield ["built", percent(summary.built), between(summary.built, percentage)]
    yield ["correct (fast_0)", percent(summary.correct), between(summary.correct, percentage)]
    for p, value in summary.fast.items():
        if p and value is not None:
            yield [f"fast_{p:g}", percent(value), between(value, percentage)]
    for k, value in summary.pass_at.items():
        over = (
            ""
            if summary.pass_at_problems[k] == summary.problems
            else f" ({counted(summary.pass_at_problems[k], 'problem')})"
        )
        yield [f"pass@{k}{over}", percent(value), between(value, percentage)]
    if summary.speedup is not None:
        yield ["speedup if correct", _times(summary.speedup), between(summary.speedup, factor)]
    if summary.speedup_or_1 is not None:
        yield ["speedup, failures as 1", _times(summary.speedup_or_1), between(summary.speedup_or_1, factor)]


def _groups(section: Section) -> Iterator[tuple[str, str, Summary]]:
    yield "total", "", section.total
    for level, summary in section.levels.items():
        yield "level", str(level), summary
    for name, summary in section.problems.items():
        yield "problem", name, summary


def _times(value: Estimate | None) -> str:
    return NOTHING if value is None else factor(value.value)
