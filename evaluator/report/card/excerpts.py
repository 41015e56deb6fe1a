"""Excerpts of a submission on screen: lines of the source with a caret, and printed text without terminal control."""

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.text import Text

from evaluator.protocol.submission_files import LONGEST_LABEL, place_of
from evaluator.records import Diagnostic, RunnerOutput
from evaluator.report.layout.sheet import Sheet, styled
from evaluator.text import counted, one_line, printable

_BEFORE = 2
_AFTER = 1
_GUTTER = 10  # "  > 1234 | "
_LONGEST_LINE = 200
_LONGEST_TEXT = 1 << 20


def lines_of(text: str) -> list[str]:
    """Return the lines of a text as compilers count them: a form feed or U+2028 ends no line."""
    return text.removesuffix("\n").split("\n")


def show_line(sheet: Sheet, source: str, line: int, *, caret: int | None = None, offset: int = 0) -> None:
    """Show line `line` (from 1) of `source` with its neighbours, and a `caret` under a cell (from 0).

    `offset` is added to the line numbers if `source` is an excerpt. Of several files, only the line's own is shown.
    """
    location = place_of(source, line)
    lines, line = lines_of(location.text), location.line
    first = max(1, line - _BEFORE)
    last = min(len(lines), line + _AFTER)
    room = sheet.text_width - _GUTTER - 1
    start = 0 if caret is None or caret < room else caret - room // 2
    for number in range(first, last + 1):
        text = _cut(sheet, printable(lines[number - 1], sheet.encoding), start, room)
        mark, style = (">", "bold") if number == line else (" ", "dim")
        sheet.line(_gutter(sheet, f"{mark}{number + offset:>5}", style).append(text, style))
        if number == line and caret is not None:
            sheet.line(_gutter(sheet, "").append(" " * (caret - start) + "^", style="bold red"))


def show_diagnostic(sheet: Sheet, source: str, diagnostic: Diagnostic) -> None:
    """Show a compiler's message at the submission's line, or in the compiler's text if the line is unknown."""
    lines = lines_of(source)
    line = diagnostic.submission_line
    if line is not None and not 1 <= line <= len(lines):
        line = None
    if line is not None:
        label = place_of(source, line).label
    else:
        label = f"{diagnostic.file}, line {diagnostic.line}" if diagnostic.file else "linking"
    message = sheet.say(label, LONGEST_LABEL, "bold").append(": ")
    sheet.paragraph(Text(), message.append_text(sheet.say(diagnostic.message, 240)))
    if line is not None:
        show_line(sheet, source, line, caret=caret_cell(diagnostic, lines[line - 1]))
    elif diagnostic.source_line.strip():
        caret = caret_cell(diagnostic, diagnostic.source_line)
        show_line(sheet, diagnostic.source_line, 1, caret=caret, offset=diagnostic.line - 1)


def caret_cell(diagnostic: Diagnostic, own_line: str) -> int | None:
    """Return the cell (from 0) of the submission's `own_line` for the compiler's column, or None.

    The compiler reads the contents of a string literal: the first line lacks the quotes, and the text may be dedented.
    The function therefore aligns the text that both lines share.
    """
    submission_text = printable(own_line)
    compiler_text = printable(diagnostic.source_line) or submission_text
    shared = compiler_text.strip()
    start = submission_text.find(shared)
    if diagnostic.column < 1 or not shared or start < 0:
        return None
    lead = len(compiler_text) - len(compiler_text.lstrip())
    cell = cell_len(submission_text[:start]) - cell_len(compiler_text[:lead]) + diagnostic.column - 1
    return cell if 0 <= cell <= cell_len(submission_text) else None


def _gutter(sheet: Sheet, text: str, style: str = "dim") -> Text:
    return styled(f"  {text:<6} {sheet.symbols.rule} ", style)


def _cut(sheet: Sheet, text: str, start: int, room: int) -> str:
    if start:
        text = text[len(chop_cells(text, start)[0]) :] if cell_len(text) > start else ""
    if cell_len(text) <= room:
        return text
    ellipsis = sheet.symbols.ellipsis
    return set_cell_size(text, room - len(ellipsis)) + ellipsis


def printed_rows(sheet: Sheet, output: RunnerOutput, most: int) -> None:
    """Show the size of the printed text and at most `most` lines: the first, and more of the end, where failures are.

    Without printed text there is no row.
    """
    if not output.total_bytes:
        return
    lines = printable(output.text[:_LONGEST_TEXT]).rstrip("\n").split("\n") if most else []
    size = counted(output.total_bytes, "byte")
    sheet.row("Printed", Text(f"{size}:" if lines else f"{size}; `warpgrade show` prints them"))
    first = most // 3 if len(lines) > most else len(lines)
    last = most - first if len(lines) > most else 0
    for line in lines[:first]:
        _line(sheet, line)
    if last:
        omitted = counted(len(lines) - first - last, "line")
        sheet.row("", styled(f"{sheet.symbols.ellipsis} {omitted} omitted; the scorecard has more", "dim"))
        for line in lines[-last:]:
            _line(sheet, line)


def _line(sheet: Sheet, line: str) -> None:
    """Show one line with its indentation, truncated."""
    indent = len(line) - len(line.lstrip(" "))
    text = " " * min(indent, _LONGEST_LINE // 2) + one_line(line, _LONGEST_LINE, sheet.encoding)
    sheet.line(styled(f"  {sheet.symbols.rule} {text}", "dim"))
