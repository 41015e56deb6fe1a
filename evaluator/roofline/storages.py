"""Storages: how much of each a set of tensors covers, and which of them a piece of PyTorch code looks into."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from evaluator.protocol.op_mode import OperationMode

_ONLY_SHAPES = ("_like", "new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided")


def identity(tensor: torch.Tensor) -> int:
    """Name the storage that `tensor` lies in.

    A storage of the meta device has no address; PyTorch's own object for it tells it from others while it lives.
    """
    name: int = tensor.untyped_storage()._cdata  # noqa: SLF001 - there is no public identity
    return name


def covered_bytes(tensors: Iterable[torch.Tensor]) -> dict[int, int]:
    """Say how many bytes of each storage `tensors` cover at most.

    Several tensors may share bytes, and an expanded one has more elements than memory: so it is no more than the
    storage has. A slice has less memory than its storage: so it is no more than the tensors' elements.
    """
    sizes: dict[int, int] = {}
    elements: dict[int, dict[tuple[Any, ...], int]] = {}
    for tensor in tensors:
        key, place = identity(tensor), (tensor.storage_offset(), *tensor.shape, *tensor.stride())
        sizes[key] = tensor.untyped_storage().nbytes()
        elements.setdefault(key, {})[place] = tensor.numel() * tensor.element_size()
    return {key: min(size_bytes, sum(elements[key].values())) for key, size_bytes in sizes.items()}


class Looks(OperationMode):
    """Notes the storages whose values the code under it uses. A view, or a tensor of the same shape, uses none."""

    def __init__(self) -> None:
        """Start with none."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.storages: set[int] = set()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Note what an operation takes, and do it."""
        if not _only_shapes(func):
            leaves = pytree.tree_leaves((args, kwargs or {}))
            self.storages |= {identity(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)}
        operation: Callable[..., Any] = func
        return operation(*args, **(kwargs or {}))


def _only_shapes(func: Any) -> bool:
    """Say whether an operation uses no values of what it takes: it makes a view of it, or something of its shape."""
    schema = func._schema  # noqa: SLF001 - there is no other way to an operation's schema
    makes_view = any(each.alias_info is not None and not each.alias_info.is_write for each in schema.returns)
    return makes_view or schema.name.endswith(_ONLY_SHAPES)
