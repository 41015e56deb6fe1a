"""Classification of PyTorch operations: computing, or only creating, moving and describing tensors."""

import functools
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

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


class OperationMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Dispatch mode that does not import PyTorch's compiler, and excludes itself from a loaded compiler.

    PyTorch wraps `__torch_dispatch__` of every mode to exclude the method from compilation. The wrapper imports the
    compiler: 0.7 s of a grade on two cores (docs/measured.md). Without a loaded compiler, no code can be compiled.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep PyTorch from wrapping `__torch_dispatch__`."""
        return False

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap `__torch_dispatch__` as PyTorch does, for calls after the compiler is loaded."""
        super().__init_subclass__(**options)  # type: ignore[no-untyped-call]
        plain = cls.__dict__["__torch_dispatch__"]
        apart = torch._disable_dynamo(plain)  # type: ignore[attr-defined]  # noqa: SLF001

        @functools.wraps(plain)
        def either(*args: Any, **options: Any) -> Any:
            return (apart if "torch._dynamo" in sys.modules else plain)(*args, **options)

        cls.__torch_dispatch__ = either  # type: ignore[method-assign]
