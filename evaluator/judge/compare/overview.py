"""Sizes of rows, and the honest reference's error, of a whole output: needed before any element is compared."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from evaluator.judge.compare.reductions import all_finite, largest
from evaluator.judge.compare.tolerance import Bounds
from evaluator.records import ToleranceRule

SMALL_ROW = 2.0**-4
"""Minimum scale of a row, relative to the whole tensor. A row of a convolution can be small because large products
cancel, and keeps their rounding."""


class Overview(NamedTuple):
    """Mean square of the whole tensor, and the honest reference's largest error relative to its row.

    An error within the units in the last place that `Bounds.honest_unit` excludes is none.

    `scales` has the size of each row of a chunk, or None for a chunk whose exact values are not finite.
    """

    whole_square: float = 0.0
    honest_error: float = 0.0
    scales: Sequence[torch.Tensor | None] = ()


def overview_of(chunks: list[list[torch.Tensor]], bounds: Bounds) -> Overview:
    """Return what the comparison of every chunk needs of all chunks."""
    if bounds.rule is ToleranceRule.KERNELBENCH:
        return Overview()
    total, count = 0.0, 0
    are_finite = [all_finite(exact) for _, exact, _ in chunks]
    for (_, exact, _), is_finite in zip(chunks, are_finite, strict=True):
        finite = (exact.reshape(-1) if is_finite else exact[torch.isfinite(exact)]).double()
        total += float(finite.square().sum())
        count += finite.numel()
    whole_square = total / count if count else 0.0
    honest_error = 0.0
    scales: list[torch.Tensor | None] = []
    for (_, exact, honest), is_finite in zip(chunks, are_finite, strict=True):
        wide, plain = exact.double(), honest.double()
        scale = row_scale(wide, whole_square, is_finite=is_finite)
        scales.append(scale if is_finite else None)
        own = wide.abs().mul_(bounds.honest_unit).add_(bounds.smallest)
        error = (plain - wide).abs_().sub_(own).clamp_(min=0.0).div_(scale)
        furthest = largest(error)
        if not math.isfinite(furthest):
            furthest = largest(error[torch.isfinite(error)])
        honest_error = max(honest_error, furthest)
    return Overview(whole_square, honest_error, scales)


def row_scale(wide: torch.Tensor, whole_square: float, *, is_finite: bool) -> torch.Tensor:
    """Return the root mean square of each row's finite elements, at least a small part of the whole tensor's."""
    if is_finite:
        mean = wide.square().sum(1, keepdim=True) / max(wide.shape[1], 1)
        return mean.clamp(min=whole_square * SMALL_ROW**2).sqrt()
    finite = torch.isfinite(wide)
    squares = torch.where(finite, wide, torch.zeros_like(wide)).square().sum(1, keepdim=True)
    mean = squares / finite.sum(1, keepdim=True).clamp(min=1)
    return mean.clamp(min=whole_square * SMALL_ROW**2).sqrt()
