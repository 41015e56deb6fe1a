"""Lay a table out in lines: numbers are never shortened, names fold, and where there is no width nothing does."""

from collections.abc import Sequence
from itertools import zip_longest

from rich.cells import cell_len, chop_cells

_GAP = "  "
_NARROWEST = 12
"""A name is folded no narrower than this, in cells. A terminal too narrow even so breaks the lines itself."""


def table_lines(
    header: Sequence[str], rows: Sequence[Sequence[str]], width: int, *, names: int = 1, right: bool = True
) -> list[str]:
    """Give the header's line and those of the rows, at most `width` cells wide where the numbers leave that room.

    The first `names` columns may fold; the others are whole, and to the `right` where they are numbers.
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
        cells = [chop_cells(cell, widths[at]) or [""] for at, cell in enumerate(row)]
        for pieces in zip_longest(*cells, fillvalue=""):
            padded = (_padded(piece, widths[at], right=right and at >= names) for at, piece in enumerate(pieces))
            lines.append(_GAP.join(padded).rstrip())
    return lines


def _padded(text: str, width: int, *, right: bool) -> str:
    blanks = " " * (width - cell_len(text))
    return blanks + text if right else text + blanks
