"""Finite elements of a reference's outputs, before and after a change of its weights."""

import torch

from evaluator.judge.formats.elements import wide
from evaluator.judge.tensors.pytree import Value
from evaluator.protocol.pytree import tensors_of


def finite_parts(value: Value) -> list[torch.Tensor]:
    """Return where each tensor of a value is finite, as booleans in its shape."""
    return [torch.isfinite(wide(leaf)) for leaf in tensors_of(value)]


def still_finite(before: list[torch.Tensor], value: Value) -> bool:
    """Return whether all formerly finite elements are still finite."""
    now = finite_parts(value)
    same = len(now) == len(before) and all(one.shape == other.shape for one, other in zip(before, now, strict=True))
    return same and all(bool((other | ~one).all()) for one, other in zip(before, now, strict=True))
