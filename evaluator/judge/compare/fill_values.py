"""Fill values: constants in place of masked elements, as -1e9 or the least finite number.

A fill value says nothing about the size of the other elements. As a part of a row's root mean square, a fill value
would allow any other element.
"""

import math

import torch

_LEAST_PART = 1024
"""Elements for each fill value, at most. Fill values are at least two."""
_LEAST_FILL = 1000.0
"""Masks are filled with -1e4 and beyond. The ones of a nearly one-hot softmax are no constants."""
_PIECE_ELEMENTS = 1 << 24
_GAP = 1024.0
"""Least ratio of a fill value to all other elements, and to the differences between fill values: a mask may be added to
scores. Sums beside a cancelling sum are no constants."""


def fill_from(values: torch.Tensor) -> float:
    """Return the size from which elements are fill values; infinity without fill values.

    >>> fill_from(torch.tensor([0.5, -2.0, -1e9, -1e9])), fill_from(torch.tensor([0.5, -2.0, 3.0]))
    (500000000.0, inf)
    """
    if not values.is_floating_point() or not values.numel():
        return math.inf
    largest = max(float(_finite_sizes(piece).amax()) for piece in _pieces(values))
    if largest < _LEAST_FILL:
        return math.inf
    count, rest, least = 0, 0.0, largest
    for piece in _pieces(values):
        sizes = _finite_sizes(piece)
        is_fill = sizes > largest / 2
        count += int(is_fill.sum())
        rest = max(rest, float(sizes.masked_fill(is_fill, 0.0).amax()))
        least = min(least, float(sizes.masked_fill(~is_fill, largest).amin()))
    is_often = count >= max(2, values.numel() // _LEAST_PART)
    is_constant = (largest - least) * _GAP <= largest
    return largest / 2 if is_often and is_constant and 0 < rest * _GAP <= largest else math.inf


def _pieces(values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.split(values.reshape(-1), _PIECE_ELEMENTS)


def _finite_sizes(piece: torch.Tensor) -> torch.Tensor:
    """Return the sizes of elements in float64; 0 for NaN and infinity."""
    sizes = piece.double().abs()
    return torch.where(torch.isfinite(sizes), sizes, 0.0)
