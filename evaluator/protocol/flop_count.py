"""Floating-point operations and bytes of a PyTorch operation, FLOP by the formulas of `torch.utils.flop_counter`.

`FlopCounterMode` itself imports PyTorch's compiler, for more than a second of a problem's first grade (`op_mode.py`).
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry


def flop_of(operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> int:
    """Return the FLOP of a matrix product, a convolution or attention, 0 for other operations.

    A multiplication and an addition are two. `operation` is the overload that a dispatch mode receives.
    """
    formula = flop_registry.get(getattr(operation, "overloadpacket", None))
    return 0 if formula is None else int(formula(*args, **kwargs, out_val=result))


def moved_bytes_of(*values: object) -> int:
    """Return the bytes of all tensors in the arguments and the result of an operation."""
    leaves = pytree.tree_leaves(values)
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves if isinstance(leaf, torch.Tensor))
