"""Layout of tables: numbers stay whole, names wrap, and nothing wraps without a width."""

from collections.abc import Sequence
from itertools import zip_longest

from rich.cells import cell_len, chop_cells

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
