"""Whether a smaller size of a problem still asks what the full one does: no dimension may have become 1.

Over a dimension of 1 a sum is a copy, a softmax is 1, and a broadcast cannot be told from none: a wrong kernel would
pass. The shapes are those of every operation of a forward, on the meta device or on any other.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

Shapes = list[tuple[int, ...]]


class ShapeTrace(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the shapes that the operations of a forward take and give, and how many elements they give in all."""

    def __init__(self) -> None:
        """Begin with none."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.shapes: Shapes = []
        self.elements = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation, and take note of it."""
        given = func(*args, **(kwargs or {}))
        for leaf in tensors_in([args, dict(kwargs or {}), given]):
            self.shapes.append(tuple(leaf.shape))
        self.elements += sum(leaf.numel() for leaf in tensors_in(given))
        return given


def collapsed(full: Shapes, small: Shapes) -> tuple[int, ...] | None:
    """Give the first full shape of which the small size makes a dimension 1 or empty; None where all stay.

    Where the two do not do the same operations, none can be told from another: the shapes with a 1 are then counted.

    >>> collapsed([(4, 8)], [(2, 8)]), collapsed([(4, 8)], [(1, 8)])
    (None, (4, 8))
    """
    alike = len(full) == len(small) and all(len(one) == len(two) for one, two in zip(full, small, strict=True))
    if not alike:
        return next((shape for shape in small if 1 in shape or 0 in shape), None)
    pairs = zip(full, small, strict=True)
    return next((one for one, two in pairs if any(a > 1 >= b for a, b in zip(one, two, strict=True))), None)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """List the tensors in lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return tensors_in(list(value.values()))
    if isinstance(value, list | tuple):
        return [leaf for each in value for leaf in tensors_in(each)]
    return []
