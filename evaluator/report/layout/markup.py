"""Untrusted text in Markdown: code spans and fenced blocks, in which a host links no mention and runs no HTML. Pure."""

import re
from collections.abc import Sequence
from html import escape
from itertools import zip_longest

from rich.cells import cell_len, chop_cells

from evaluator.text import one_line, printable

_TICKS = re.compile(r"`+")


def code_span(text: str, limit: int = 200) -> str:
    r"""Return text on one line as a code span, also for the cell of a table.

    >>> print(code_span("a|b"), code_span("``x"), code_span(""))
    `a\|b` ``` ``x ``` -
    """
    line = one_line(text, limit)
    if not line:
        return "-"
    ticks = "`" * (_longest(line) + 1)
    blank = " " if "`" in line else ""
    return f"{ticks}{blank}{line}{blank}{ticks}".replace("|", "\\|")


def folded(summary: str, text: str) -> list[str]:
    """Return the lines of a folded section: a summary of one line, and text in a fenced block."""
    text = printable(text)
    ticks = "`" * max(3, _longest(text) + 1)
    title = escape(one_line(summary, 300))
    return [f"<details><summary><code>{title}</code></summary>", "", f"{ticks}text", text, ticks, "", "</details>", ""]


def _longest(text: str) -> int:
    return max((len(run) for run in _TICKS.findall(text)), default=0)


_GAP = "  "
_NARROWEST = 12
"""Minimum width of a wrapped name, in cells. A narrower terminal breaks the lines itself."""


def table_lines(header: Sequence[str], rows: Sequence[Sequence[str]], width: int, *, names: int = 1) -> list[str]:
    """Return the lines of header and rows, at most `width` cells wide if the numbers fit.

    The first `names` columns may wrap; the others stay whole and are right-aligned.
    """
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(cell_len, column)) for column in columns]
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    while excess > 0 and (widest := max(range(names), key=widths.__getitem__, default=0)) < names:
        if widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
        excess -= 1
    lines: list[str] = []
    for row in (header, *rows):
        # A column of empty cells has no width, and no text has a line without width.
        cells = [chop_cells(cell, max(1, widths[at])) or [""] for at, cell in enumerate(row)]
        for pieces in zip_longest(*cells, fillvalue=""):
            padded = (_padded(piece, widths[at], right=at >= names) for at, piece in enumerate(pieces))
            lines.append(_GAP.join(padded).rstrip())
    return lines


def _padded(text: str, width: int, *, right: bool) -> str:
    blanks = " " * (width - cell_len(text))
    return blanks + text if right else text + blanks
