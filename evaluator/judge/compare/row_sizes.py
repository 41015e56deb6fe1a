"""Sizes of rows, and the honest reference's error, of a whole output: needed before any element is compared.

The reductions take care of NaN and infinity, and are fast where a tensor contains neither.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from evaluator.judge.compare.tolerance import Bounds, last_place
from evaluator.records import ToleranceRule


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as the rows of the tolerance: along the last dimension that has other than one element.

    A row of one element has no size but the element's own, and the element may be small because its terms cancel. The
    rounding follows the terms. A tensor [N, 1] or [N, 1, 1] is therefore a single row, as a vector is, and [B, C, 1, 1]
    has B rows of C elements. A scalar and [1] are a row of one element: there is no other.

    >>> [tuple(as_rows(torch.zeros(shape)).shape) for shape in ([2, 3, 1, 1], [3, 1], [1, 1], [])]
    [(2, 3), (1, 3), (1, 1), (1, 1)]
    """
    shape = list(tensor.shape)
    while shape and shape[-1] == 1:
        shape.pop()
    return along_last(tensor.reshape(shape))


def along_last(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as rows along the last dimension, of any length; a vector or a scalar is a single row."""
    if tensor.dim() <= 1:
        return tensor.reshape(1, -1)
    return tensor.reshape(math.prod(tensor.shape[:-1]), tensor.shape[-1])  # -1 is ambiguous without elements


def all_finite(*tensors: torch.Tensor) -> bool:
    """Return whether no element is NaN or infinite. The least and the largest element show both."""
    ends = [end for tensor in tensors if tensor.numel() for end in torch.aminmax(tensor)]
    return all(math.isfinite(float(end)) for end in ends)


def is_exact(actual: torch.Tensor, exact: torch.Tensor, honest: torch.Tensor) -> bool:
    """Return whether all three values of every element are finite and equal: no tolerance is needed then.

    Values whose squares overflow count as not exact, and are compared closely. So do values of fp8, for which PyTorch
    has no `equal` on the CPU.
    """
    if actual.element_size() == 1 or not torch.equal(actual, honest):
        return False
    wide = exact.double().reshape(-1)
    return torch.equal(honest.double().reshape(-1), wide) and math.isfinite(float(wide @ wide))


def selected(values: torch.Tensor, where: torch.Tensor | None) -> torch.Tensor:
    """Return the values of some elements; None selects all."""
    return values if where is None else values[where]


def largest(values: torch.Tensor) -> float:
    """Return the largest value; 0 without values."""
    return float(values.max()) if values.numel() else 0.0


def ratio_to(error: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """Divide, with 0 / 0 = 0: no error passes a tolerance of 0."""
    if allowed.numel() and float(allowed.min()) > 0.0:
        return error / allowed
    return torch.where(error == 0, torch.zeros_like(error), error / allowed)


def may_exceed(error: torch.Tensor, level: torch.Tensor) -> bool:
    """Return whether an error may exceed the level of its row, by the largest error and the lowest level alone."""
    return not largest(error) <= float(level.min())  # NaN may exceed anything.


SMALL_ROW = 2.0**-4
"""Minimum scale of a row, relative to the whole tensor. A row of a convolution can be small because large products
cancel, and keeps the rounding of the products. A column can be small too, relative to the column's rows."""
_FEW_ELEMENTS = 8
"""Elements of a vector that is no row: two losses in a tensor have two sizes."""
_MOST_COLUMNS, _LEAST_ROWS, _MOST_DIMS = 128, 8, 3
"""Outputs with columns of separate meanings, as boxes beside probabilities. An image's columns have none."""

_LEAST_COLUMN = 2.0**-20
"""Size of a column beside the largest one, below which its elements are results of rounding in fp32."""


class Overview(NamedTuple):
    """Mean square of the whole tensor, and the honest reference's largest error relative to the element's scale.

    `scales` has the size of each row of a chunk, or None for a chunk whose exact values are not finite. `columns` is
    the largest scale of the elements of each column; None without a limit.
    """

    whole_square: float = 0.0
    honest_error: float = 0.0
    scales: Sequence[torch.Tensor | None] = ()
    columns: torch.Tensor | None = None


def overview_of(chunks: list[list[torch.Tensor]], bounds: Bounds, shape: torch.Size) -> Overview:
    """Summarize all chunks of an output of `shape`, for the comparison of every chunk."""
    if bounds.rule is ToleranceRule.KERNELBENCH:
        return Overview()
    total, count = 0.0, 0
    are_finite = [all_finite(exact) for _, exact, _ in chunks]
    for (_, exact, _), is_finite in zip(chunks, are_finite, strict=True):
        wide = exact.double()
        counted = _counted(wide, bounds, is_finite=is_finite)
        total += float((wide if counted is None else wide[counted]).square().sum())
        count += wide.numel() if counted is None else int(counted.sum())
    whole_square = total / count if count else 0.0
    columns = column_limits([exact for _, exact, _ in chunks], bounds) if has_columns(shape) else None
    honest_error = 0.0
    scales: list[torch.Tensor | None] = []
    for (_, exact, honest), is_finite in zip(chunks, are_finite, strict=True):
        wide, plain = exact.double(), honest.double()
        rows = row_scale(wide, whole_square, bounds, is_finite=is_finite)
        scales.append(rows if is_finite else None)
        size = wide.abs()
        own_rounding = last_place(size).mul_(bounds.unit).add_(bounds.smallest)
        error = (plain - wide).abs_().sub_(own_rounding).clamp_(min=0.0).div_(element_scale(rows, size, columns, shape))
        furthest = largest(error)
        if not math.isfinite(furthest):
            furthest = largest(error[torch.isfinite(error)])
        honest_error = max(honest_error, furthest)
    return Overview(whole_square, honest_error, scales, columns)


def has_columns(shape: torch.Size) -> bool:
    """Return whether the columns of an output count: few columns of many rows.

    >>> has_columns(torch.Size([8192, 85])), has_columns(torch.Size([8192, 4096])), has_columns(torch.Size([4, 85]))
    (True, False, False)
    """
    if not 1 < len(shape) <= _MOST_DIMS or not 1 < shape[-1] <= _MOST_COLUMNS:
        return False
    return math.prod(shape[:-1]) >= _LEAST_ROWS


def is_vector_of_few(shape: torch.Size) -> bool:
    """Return whether an output has at most a few numbers, each with a separate size."""
    return math.prod(shape) < _FEW_ELEMENTS


def element_scale(
    rows: torch.Tensor, sizes: torch.Tensor, columns: torch.Tensor | None, shape: torch.Size
) -> torch.Tensor:
    """Return the scales of the errors of elements, from the sizes of rows [R, 1] and of elements [R, C]."""
    if is_vector_of_few(shape):
        return sizes
    of_row = rows if columns is None else torch.minimum(rows, columns)
    return torch.maximum(of_row.expand_as(sizes), sizes)


def row_scale(wide: torch.Tensor, whole_square: float, bounds: Bounds, *, is_finite: bool) -> torch.Tensor:
    """Return the root mean square of each row's finite elements, at least a small part of the whole tensor's.

    Fill values do not count.
    """
    counted = _counted(wide, bounds, is_finite=is_finite)
    if counted is None:
        mean = wide.square().sum(1, keepdim=True) / max(wide.shape[1], 1)
    else:
        squares = torch.where(counted, wide, torch.zeros_like(wide)).square().sum(1, keepdim=True)
        mean = squares / counted.sum(1, keepdim=True).clamp(min=1)
    return mean.clamp(min=whole_square * SMALL_ROW**2).sqrt()


def _counted(wide: torch.Tensor, bounds: Bounds, *, is_finite: bool) -> torch.Tensor | None:
    """Return a mask of the elements that count in the size of a row; None for all."""
    if bounds.fill < math.inf:
        return wide.abs() < bounds.fill  # NaN and infinity are not below.
    return None if is_finite else torch.isfinite(wide)


def column_limits(chunks: Sequence[torch.Tensor], bounds: Bounds) -> torch.Tensor:
    """Return the largest scale of the elements of each column of a matrix: a multiple of the column's own size.

    A column of results of rounding has no size and no limit: with equal rows, the terms of a whole column may cancel.
    """
    squares, counts = torch.zeros(2, chunks[0].shape[1], dtype=torch.float64, device=chunks[0].device)
    for chunk in chunks:
        wide = chunk.double()
        counted = torch.isfinite(wide) & (wide.abs() < bounds.fill)
        squares += torch.where(counted, wide, 0.0).square().sum(0)
        counts += counted.sum(0)
    sizes = (squares / counts.clamp(min=1)).sqrt()
    return torch.where(sizes > _LEAST_COLUMN * sizes.amax(), sizes / SMALL_ROW, math.inf)
