"""Wrong elements of an answer, and values that runs of the reference with other roundings have there."""

import torch

from evaluator.judge.compare.tensor_comparison import Sides, wrong_elements
from evaluator.judge.compare.tolerance import Bounds

_MOST_OF_VALUE = 4
_FEW_VALUES = 16
"""Of a mask, and of outputs with as few different values, at most a quarter of the elements with a value may be wrong:
a constant is no answer at ties."""
_SAMPLE = 4096
"""Elements that are counted first: most outputs have more than `_FEW_VALUES` values among them."""


class Seen:
    """Wrong elements of an answer in a block, and whether a run of the reference gave the answer's value."""

    def __init__(self, sides: Sides, limit: Bounds | None = None) -> None:
        """Find the wrong elements: beyond `limit`, or without a limit different from both references."""
        self._honest = sides.honest
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

        Within the tolerance of a run's number, an element is explained only if the run's number is a step away.
        """
        if values.shape != self._honest.shape or values.dtype != self._honest.dtype:
            return
        changed = self._differ(values, self._honest)
        if counts:
            self._changed |= changed
        if explains:
            self._explained |= changed & ~self._differ(self._actual, values)

    def _differ(self, values: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
        if self._limit is None:
            return values != expected
        return wrong_elements(Sides(values, expected.double(), expected), self._limit)

    def count_anew(self) -> None:
        """Let `decided` be about the following runs."""
        self._changed.zero_()

    @property
    def unexplained(self) -> int:
        """Number of the answer's wrong elements without a run of equal value."""
        return int((self._wrong & ~self._explained).sum())

    @property
    def decided(self) -> int:
        """Number of elements of the block with another value in a run."""
        return int(self._changed.sum())

    @property
    def lacks_a_value(self) -> bool:
        """Whether most elements with one of few values are wrong."""
        every = max(1, self._honest.numel() // _SAMPLE)
        if len(torch.unique(self._honest.reshape(-1)[::every])) > _FEW_VALUES:
            return False
        values, counts = torch.unique(self._honest, return_counts=True)
        if len(values) > _FEW_VALUES:
            return False
        wrong = self._honest[self._wrong]
        return any(
            int((wrong == value).sum()) * _MOST_OF_VALUE > count
            for value, count in zip(values, counts.tolist(), strict=True)
        )
