"""Histogram of samples over the cells of an axis. Pure. The samples come from an untrusted card."""

import math
from collections.abc import Sequence
from typing import NamedTuple


class Axis(NamedTuple):
    """A time range in `cells` equal parts."""

    low_ms: float
    high_ms: float
    cells: int

    def place(self, value_ms: float) -> float:
        """Return the position of a time, from 0 at the low end to 1 at the high end, clamped to this range.

        >>> Axis(1.0, 3.0, 4).place(1.5), Axis(1.0, 3.0, 4).place(9.0)
        (0.25, 1.0)
        """
        # Halved before the subtraction: the difference of a card's numbers may overflow.
        width = self.high_ms / 2 - self.low_ms / 2
        if not width > 0:
            return 0.0
        return min(max((value_ms / 2 - self.low_ms / 2) / width, 0.0), 1.0)

    def counts(self, values_ms: Sequence[float]) -> list[int]:
        """Count the values in each cell.

        >>> Axis(0.0, 4.0, 4).counts([0.5, 0.6, 2.0, 4.0])
        [2, 0, 1, 1]
        """
        counts = [0] * self.cells
        for value in values_ms:
            counts[min(int(self.place(value) * self.cells), self.cells - 1)] += 1
        return counts


def own_axis(values_ms: Sequence[float], cells: int) -> Axis:
    """Return an axis from the smallest to the largest of `values_ms`, which is not empty."""
    return Axis(min(values_ms), max(values_ms), cells)


def heights(counts: Sequence[int], levels: int) -> list[int]:
    """Scale counts to 0..`levels`. The largest count has the top level, and no positive count becomes 0.

    >>> heights([0, 1, 50, 100], 8)
    [0, 1, 4, 8]
    """
    most = max(counts, default=0)
    return [math.ceil(count * levels / most) if count else 0 for count in counts]
