"""Wrong elements of an answer, and values that runs of the reference with other roundings have there."""

import torch

from evaluator.judge.compare.tensor_comparison import Sides, wrong_elements
from evaluator.judge.compare.tolerance import Bounds

_MOST_OF_VALUE = 4
_FEW_VALUES = 16
"""Of a mask, and of outputs with as few different values, at most a quarter of the elements with a value may be wrong:
a constant is no answer at ties."""
_REPEATED = 8
"""Elements with one value that form a class in every output. As many missing elements are not missing by chance."""


class Seen:
    """Wrong elements of an answer in a block, and whether a run of the reference gave the answer's value."""

    def __init__(self, sides: Sides, limit: Bounds | None = None, *, constant_rows: bool = False) -> None:
        """Find the wrong elements: beyond `limit`, or without a limit different from both references.

        With `constant_rows`, inputs repeat one value in each row. If outputs and answers do so, too, a row is one
        element.
        """
        self._honest = sides.honest
        self._rows_are_elements = constant_rows and _are_constant(sides.honest) and _are_constant(sides.actual)
        self._actual = sides.actual
        self._limit = limit
        if limit is None:
            self._wrong = (sides.actual != sides.honest) & (sides.actual != sides.exact.to(sides.honest.dtype))
        else:
            self._wrong = wrong_elements(sides, limit)
        self._explained = torch.zeros_like(self._wrong)
        self._changed = torch.zeros_like(self._wrong)

    @property
    def has_tolerance(self) -> bool:
        """Whether the elements are numbers with a tolerance."""
        return self._limit is not None

    def add(self, values: torch.Tensor, *, counts: bool = True, explains: bool = True) -> None:
        """Add the values of another run; `decided` is about the runs that count, and some runs explain nothing.

        A run explains a number within the tolerance of the run's number, if the run's number is a step away.
        """
        if values.shape != self._honest.shape or values.dtype != self._honest.dtype:
            return
        changed = self._differ(values, self._honest)
        if counts:
            self._changed |= changed
        if explains:
            self._explained |= changed & ~self._differ(self._actual, values)

    def _differ(self, values: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
        """Return where values differ from expected ones. The sizes of rows are those of the plain reference.

        A run may have one large number, which would widen the tolerance of other rows.
        """
        if self._limit is None:
            return values != expected
        honest = self._honest.double()
        moved = honest + (values.double() - expected.double())
        return wrong_elements(Sides(moved, honest, self._honest), self._limit)

    def count_anew(self) -> None:
        """Let `decided` be about the following runs."""
        self._changed.zero_()

    @property
    def unexplained(self) -> int:
        """Number of the answer's wrong elements without a run of equal value."""
        return int((self._wrong & ~self._explained).sum())

    @property
    def first_place(self) -> int:
        """Position of the first wrong element; 0 without any."""
        return int(self._wrong.reshape(-1).to(torch.uint8).argmax())

    @property
    def steps_off(self) -> int:
        """Number of steps behind the wrong elements without a run of equal value."""
        return sum(self._steps(self._wrong & ~self._explained))

    @property
    def has_lines(self) -> bool:
        """Whether a row or a column has mostly wrong elements."""
        return self._steps(self._wrong)[0] > 0

    @property
    def changed_lines(self) -> int:
        """Number of rows and columns with mostly another value in a run."""
        return self._steps(self._changed)[0]

    @property
    def decided(self) -> int:
        """Number of steps behind the elements of the block with another value in a run."""
        return sum(self._steps(self._changed))

    @property
    def lacks_a_value(self) -> bool:
        """Whether most elements with a value are wrong, or most of those that differ from the most frequent value."""
        honest, actual, are_wrong = self._honest, self._actual, self._wrong
        if self._rows_are_elements:
            honest, actual, are_wrong = honest[..., 0], actual[..., 0], are_wrong.any(-1)
        values, classes, counts = torch.unique(honest, return_inverse=True, return_counts=True)
        wrong = torch.bincount(classes[are_wrong], minlength=len(values))
        least = 1 if len(values) <= _FEW_VALUES else _REPEATED
        lacks = (wrong * _MOST_OF_VALUE > counts) & (counts >= least)
        usual = counts.argmax()
        missing = int((are_wrong & (classes != usual) & (actual == values[usual])).sum())
        others = classes.numel() - int(counts[usual])
        return bool(lacks.any()) or (missing >= _REPEATED and missing * _MOST_OF_VALUE > others)

    def _steps(self, elements: torch.Tensor) -> tuple[int, int]:
        return _lines_and_rest(elements.any(-1) if self._rows_are_elements else elements)


def _are_constant(rows: torch.Tensor) -> bool:
    return rows.dim() > 1 and bool((rows == rows[..., :1]).all())


def _lines_and_rest(elements: torch.Tensor) -> tuple[int, int]:
    """Return how many rows and columns have most of the elements set, and how many other elements are set.

    A step of an operand, as of an int8 code, changes a whole row of a product, or a whole column.
    """
    if elements.dim() < 2:
        return 0, int(elements.sum())
    rest, lines = elements, 0
    for dim in (-1, 0):
        are_whole = 2 * rest.sum(dim, keepdim=True) > rest.shape[dim]
        lines += int(are_whole.sum())
        rest = rest & ~are_whole
    return lines, int(rest.sum())
