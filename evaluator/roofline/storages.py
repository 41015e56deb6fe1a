"""Storages: the bytes of each covered by tensors, and the storages with values used by PyTorch code."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from evaluator.protocol.operations import OperationMode, flop_of

_ONLY_SHAPES = ("_like", "new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided")


def identity(tensor: torch.Tensor) -> int:
    """Return an identifier of the storage of `tensor`.

    A storage on the meta device has no address; PyTorch's storage object identifies it during its lifetime.
    """
    name: int = tensor.untyped_storage()._cdata  # noqa: SLF001 - there is no public identity
    return name


def covered_bytes(tensors: Iterable[torch.Tensor]) -> dict[int, int]:
    """Return an upper bound on the bytes of each storage that `tensors` cover.

    Several tensors may share bytes, and an expanded tensor has more elements than memory: the storage's size is a
    bound. A slice is smaller than its storage: the sum over the tensors' elements is another.
    """
    sizes: dict[int, int] = {}
    elements: dict[int, dict[tuple[Any, ...], int]] = {}
    for tensor in tensors:
        key, layout = identity(tensor), (tensor.storage_offset(), *tensor.shape, *tensor.stride())
        sizes[key] = tensor.untyped_storage().nbytes()
        elements.setdefault(key, {})[layout] = tensor.numel() * tensor.element_size()
    return {key: min(size_bytes, sum(elements[key].values())) for key, size_bytes in sizes.items()}


class Looks(OperationMode):
    """Recorder of the storages with values used by the code inside, and of its FLOP.

    Views and tensors of the same shape use no values.
    """

    def __init__(self) -> None:
        """Start without storages."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.storages: set[int] = set()
        self.flop = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Record the tensors and the FLOP of an operation, and run the operation."""
        if not _only_shapes(func):
            leaves = pytree.tree_leaves((args, kwargs or {}))
            self.storages |= {identity(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)}
        operation: Callable[..., Any] = func
        result = operation(*args, **(kwargs or {}))
        self.flop += flop_of(func, args, kwargs or {}, result)
        return result


def _only_shapes(func: Any) -> bool:
    """Return whether an operation ignores the values of its tensors, and makes a view or a tensor of the same shape."""
    schema = func._schema  # noqa: SLF001 - there is no other way to an operation's schema
    makes_view = any(result.alias_info is not None and not result.alias_info.is_write for result in schema.returns)
    return makes_view or schema.name.endswith(_ONLY_SHAPES)
