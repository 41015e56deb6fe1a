"""Trees of tensors and plain values, for judge and runner: leaves, changed tensors, and the tree of frames.

The judge never takes a tree from a runner, except as frames: the judge pairs `Node`s with the expected tree itself.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard

import torch

from evaluator.protocol.frames import Items, Node, Scalar, Table, TensorView
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
        return Table(keys=list(map(_key, value)), items=[below(item, f".{key}") for key, item in value.items()])
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
