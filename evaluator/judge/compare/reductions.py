"""Reductions of tensors with care for NaN and infinity, fast where a tensor contains neither."""

import math

import torch


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
