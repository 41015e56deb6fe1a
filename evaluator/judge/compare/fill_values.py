"""Fill values: constants in place of masked elements, as -1e9 or the least finite number.

A fill value says nothing about the size of the other elements. As a part of a row's root mean square, it would allow
any other element.
"""

import math

import torch

_LEAST_PART = 1024
"""Fill values are at least one element in so many, and two."""
_GAP = 1024.0
"""Fill values are so many times as large as all other elements, and differ by less than one part in so many: a mask may
be added to scores. Sums beside one that cancels are no constants."""


def fill_from(values: torch.Tensor) -> float:
    """Return the size from which elements are fill values; infinity without fill values.

    >>> fill_from(torch.tensor([0.5, -2.0, -1e9, -1e9])), fill_from(torch.tensor([0.5, -2.0, 3.0]))
    (500000000.0, inf)
    """
    if not values.is_floating_point() or not values.numel():
        return math.inf
    sizes = values.double().abs()
    finite = sizes[torch.isfinite(sizes)]
    largest = float(finite.max()) if finite.numel() else 0.0
    is_large = finite > largest / 2
    count = int(is_large.sum())
    if not largest or count < max(2, values.numel() // _LEAST_PART) or count == finite.numel():
        return math.inf
    rest, least = float(finite[~is_large].max()), float(finite[is_large].min())
    return largest / 2 if 0 < rest * _GAP <= largest and (largest - least) * _GAP <= largest else math.inf
