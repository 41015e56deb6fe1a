"""Classification of PyTorch operations: computing, or only creating, moving and describing tensors."""

from typing import Any

import torch

LIBRARY = frozenset(("aten", "prims", "quantized", "mkldnn", "mkl", "onednn", "torchvision", "inductor"))
NO_WORK = frozenset(
    (
        *("empty", "empty_like", "empty_strided", "empty_permuted", "zeros", "zeros_like", "ones", "ones_like"),
        *("full", "full_like", "fill", "fill_", "zero_", "arange", "scalar_tensor", "new_empty", "new_empty_strided"),
        *("new_zeros", "new_ones", "new_full", "rand", "randn", "rand_like", "randn_like", "randint"),
        *("copy_", "_to_copy", "clone", "contiguous", "cat", "stack", "resize_", "set_", "lift_fresh", "alias"),
        *("detach", "_local_scalar_dense", "_unsafe_view", "_reshape_alias", "view_as_real", "is_same_size"),
        *("record_stream", "is_pinned", "_pin_memory", "resolve_conj", "resolve_neg", "constant_pad_nd"),
    )
)
"""Operations to create, move or describe tensors. Honest submissions need some around kernels."""
_DESCRIBES = frozenset(
    ("item", "is_nonzero", "is_floating_point", "is_complex", "is_signed", "type_as", "set_data", "equal")
)
"""Composites of `NO_WORK` operations, with kernels under other names in the dispatcher, and a comparison."""


def computes(operator: Any) -> bool:
    """Return whether a PyTorch operator (an overload) does work that a custom kernel could replace."""
    name = _packet_name(operator)
    return not operator.is_view and name not in NO_WORK and name not in _DESCRIBES


def operation_name(operator: Any) -> str:
    """Return the name of an operator, the same for the form in place and for all overloads.

    >>> operation_name(torch.ops.aten.relu_.default)
    'relu'
    """
    return _packet_name(operator).rstrip("_")


def _packet_name(operator: Any) -> str:
    return str(getattr(operator, "overloadpacket", operator).__name__)


def operator_of(name: str) -> Any:
    """Return the overload for a dispatcher name like `aten::add.Tensor`; None without a Python counterpart."""
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base, None)
    return getattr(packet, overload or "default", None)
