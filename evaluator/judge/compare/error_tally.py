"""Tally of an output's errors, of a part or of all parts up to now. Pure."""

import operator
from typing import NamedTuple

import torch

from evaluator.records import Mismatch, number_text

LEVELS = 8
STEP = 4.0
"""Errors are counted beyond `LEVELS` levels, each `STEP` times the previous level: from 16 floors to 13 times a row's
size in fp32."""


class First(NamedTuple):
    """The first wrong element: position in the flattened tensor, and both values."""

    position: int
    expected: float | int | bool
    actual: float | int | bool


class Far(NamedTuple):
    """Numbers of errors beyond each level (`Bounds.counted_from`), of the answer and of the honest reference.

    `ratio` is the answer's largest error as a multiple of the first level; `first` is the first element beyond this
    level.
    """

    counts: tuple[int, ...] = (0,) * LEVELS
    honest: tuple[int, ...] = (0,) * LEVELS
    ratio: float = 0.0
    first: First | None = None


class ErrorTally(NamedTuple):
    """Result of a chunk, or of all chunks up to now. `ratio` is the largest error as a multiple of the allowed error.

    `tolerance` is the allowed error of every element beyond its rounding, relative to its scale; 0 under `kernelbench`.
    """

    max_abs_error: float = 0.0
    ratio: float = 0.0
    honest_ratio: float = 0.0
    mismatches: int = 0
    nonfinite: int = 0
    first: First | None = None
    far: Far = Far()
    tolerance: float = 0.0


def merged(tally: ErrorTally, part: ErrorTally) -> ErrorTally:
    """Return the tally of two parts, `part` behind `tally`."""
    return ErrorTally(
        max(tally.max_abs_error, part.max_abs_error),
        max(tally.ratio, part.ratio),
        max(tally.honest_ratio, part.honest_ratio),
        tally.mismatches + part.mismatches,
        tally.nonfinite + part.nonfinite,
        tally.first or part.first,
        Far(
            _added(tally.far.counts, part.far.counts),
            _added(tally.far.honest, part.far.honest),
            max(tally.far.ratio, part.far.ratio),
            tally.far.first or part.far.first,
        ),
        max(tally.tolerance, part.tolerance),
    )


def _added(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(operator.add, one, other))


def mismatch(first: First, shape: torch.Size) -> Mismatch:
    """Return the record of a wrong element of a tensor of `shape`."""
    index: list[int] = []
    flat = first.position
    for size in reversed(shape):
        flat, coordinate = divmod(flat, size)
        index.append(coordinate)
    index.reverse()
    return Mismatch(index=index, expected=number_text(first.expected), actual=number_text(first.actual))
