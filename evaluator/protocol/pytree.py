"""Trees of values in arguments and answers, and the memory of an answer's tensors.

The judge never takes a tree from a runner, except as frames: the judge pairs `Node`s with the expected tree itself.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard

import torch

from evaluator.protocol.frames import DictItems, Done, Items, Node, Scalar, TensorView
from evaluator.protocol.frames.bounds import MOST_DEPTH

_MOST_TEXT = 65_536
_MOST_NAME = 1024


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each leaf of a value with a path, for example `[0].mask`."""
    if isinstance(value, torch.Tensor):  # The test for a Mapping takes ten times as long.
        yield path, value
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}")
    else:
        yield path, value


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Return the tensors of a nested value, in order."""
    return [leaf for _, leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def mapped(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Return a nested value of the same structure with `change` applied to each tensor."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        items = [mapped(item, change) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, Mapping):
        return {key: mapped(item, change) for key, item in value.items()}
    return value


def plain(value: Any) -> Any:
    """Return a plain value in Python's own type: float for `numpy.float64`, int for an IntEnum.

    >>> plain(True), plain(None)
    (True, None)
    """
    kind = next((kind for kind in (bool, int, float, str) if isinstance(value, kind)), None)
    return value if kind is None else kind(value)


def node_of(
    value: Any,
    of_tensor: Callable[[torch.Tensor, str], Node],
    of_other: Callable[[Any, str], Node],
    path: str = "",
    depth: int = 0,
) -> Node:
    """Return the tree of frames of a value.

    `of_tensor` describes a tensor with its path. `of_other` describes a value that no frame can hold: of another type,
    too large, or nested too deeply.
    """

    def below(item: Any, step: str) -> Node:
        return node_of(item, of_tensor, of_other, path + step, depth + 1)

    if isinstance(value, torch.Tensor):
        return of_tensor(value, path)
    is_text = isinstance(value, str) and len(value) <= _MOST_TEXT
    if value is None or isinstance(value, float) or is_text or _is_64_bit(value):
        return Scalar(value=plain(value))
    if depth < MOST_DEPTH and isinstance(value, list | tuple):
        items = [below(item, f"[{index}]") for index, item in enumerate(value)]
        return Items(is_tuple=isinstance(value, tuple), items=items)
    if depth < MOST_DEPTH and isinstance(value, Mapping):
        return DictItems(keys=list(map(_key, value)), items=[below(item, f".{key}") for key, item in value.items()])
    return of_other(value, path)


def _key(key: object) -> int | str:
    if _is_64_bit(key):
        return key
    return (key if isinstance(key, str) else str(key))[:_MOST_NAME]


def _is_64_bit(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and -(2**63) <= value < 2**63


def view_of(tensor: torch.Tensor) -> TensorView:
    """Return the layout of a tensor, without a position in shared memory."""
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    return TensorView(dtype=dtype_name(tensor.dtype), shape=shape, strides=strides, offset_bytes=None)


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype in frames and cards.

    >>> dtype_name(torch.float32)
    'float32'
    """
    return str(dtype).removeprefix("torch.")


_DTYPES = {name: kind for name, kind in vars(torch).items() if isinstance(kind, torch.dtype)}
"""By name. The attribute of another name can import a part of PyTorch (`torch._inductor`) into the judge."""


def answer_spans(done: Done) -> list[tuple[int, int]]:
    """Return offset and size in bytes of each tensor of an answer, gaps between elements included.

    Tensors without elements or without an offset are left out. The numbers of a runner's answer are hostile.
    """
    return [span for view in answer_views(done) if (span := _span(view)) is not None]


def answer_views(done: Done) -> list[TensorView]:
    """Return all tensors of an answer, gradients included."""
    nodes = [done.outputs, *(view for view in (done.gradients or {}).values() if view is not None)]
    return [view for node in nodes for view in _views(node)]


def _views(node: Node) -> Iterator[TensorView]:
    match node:
        case TensorView():
            yield node
        case Items(items=items) | DictItems(items=items):
            for item in items:
                yield from _views(item)
        case _:
            return


def _span(view: TensorView) -> tuple[int, int] | None:
    dtype = _DTYPES.get(view.dtype)
    if view.offset_bytes is None or 0 in view.shape or dtype is None:
        return None
    reach = sum((size - 1) * step for size, step in zip(view.shape, view.strides, strict=False))
    return view.offset_bytes, (1 + max(reach, 0)) * dtype.itemsize
