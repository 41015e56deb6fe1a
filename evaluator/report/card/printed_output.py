"""Printed text of a submission on screen: a bounded excerpt without terminal control."""

from rich.text import Text

from evaluator.records import RunnerOutput
from evaluator.report.layout.sheet import Sheet, styled
from evaluator.text import counted, one_line, printable

_LONGEST_LINE = 200
_LONGEST_TEXT = 1 << 20


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
        left = counted(len(lines) - first - last, "line")
        sheet.row("", styled(f"{sheet.symbols.ellipsis} {left} omitted; the scorecard has more", "dim"))
        for line in lines[-last:]:
            _line(sheet, line)


def _line(sheet: Sheet, line: str) -> None:
    """Show one line with its indentation, truncated."""
    indent = len(line) - len(line.lstrip(" "))
    text = " " * min(indent, _LONGEST_LINE // 2) + one_line(line, _LONGEST_LINE, sheet.encoding)
    sheet.line(styled(f"  {sheet.symbols.rule} {text}", "dim"))
