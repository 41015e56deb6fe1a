"""Inputs of a runner in shared memory, and the structure of its answers."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from msgspec.structs import replace

from evaluator.devices.memory import ALIGNMENT_BYTES, Region, places, strided
from evaluator.errors import ProblemError
from evaluator.findings import Code, finding
from evaluator.protocol.frames import DictItems, Items, Node, Opaque, Scalar, TensorView
from evaluator.protocol.pytree import node_of, tensors_of, view_of
from evaluator.records import Finding

Value = Any
"""A tensor, a plain Python value, or a list, tuple or dict of values."""


def unravelled(places: torch.Tensor, shape: Sequence[int]) -> tuple[torch.Tensor, ...]:
    """Return the index in each dimension for flat positions (`places`, int64) in a contiguous tensor of `shape`.

    `torch.unravel_index` does the same, but imports sympy: 0.2 to 0.3 s (docs/evidence/grade_speed_h200.md).
    """
    indices: list[torch.Tensor] = []
    for size in reversed(shape):
        indices.append(places % size)
        places = places // size
    return tuple(reversed(indices))


class LaidOut(NamedTuple):
    """Values and positions in a region: nodes for the runner, and pairs for the judge's check of changes.

    Every pair holds a path, the judge's own tensor, and the shared tensor. `weights` lie in the memory of the runner's
    model, and the runner may change the weights.
    """

    nodes: list[Node]
    pairs: list[tuple[str, torch.Tensor, torch.Tensor]]
    weights: Sequence[tuple[torch.Tensor, torch.Tensor]] = ()

    def write(self) -> None:
        """Write the values into the region. On a GPU, the current stream queues the copies."""
        for value, shared in self.weights:
            shared.copy_(value)
        for _, value, shared in self.pairs:
            shared.copy_(value)


def lay_out(values: list[tuple[str, Value]], region: Region) -> LaidOut:
    """Choose positions in `region` for named values, at addresses that differ from call to call; write nothing.

    A tensor keeps the distance from an aligned address that the tensor has in its storage.
    """
    tensors = [_writable(leaf, path) for path, value in values for leaf in tensors_of(value)]
    offsets = places([_lead_bytes(leaf) + extent_bytes(leaf) for leaf in tensors], region.size_bytes)
    pairs: list[tuple[str, torch.Tensor, torch.Tensor]] = []

    def placed_view(tensor: torch.Tensor, path: str) -> TensorView:
        value = _writable(tensor, path)
        offset_bytes = next(offsets) + _lead_bytes(value)
        view = replace(view_of(value), offset_bytes=offset_bytes)
        shared = strided(region.flat, value.dtype, view.shape, view.strides, offset_bytes)
        pairs.append((path, value, shared))
        return view

    return LaidOut([node_of(value, placed_view, _refuse, path) for path, value in values], pairs)


def _refuse(value: Value, path: str) -> Node:
    raise ProblemError(
        f"{path} is a {type(value).__name__}, which a runner cannot receive",
        hint="inputs are tensors, numbers, strings, None, and lists, tuples and dicts of them",
    )


def named_views(node: Node) -> dict[str, TensorView]:
    """Return the tensors of a table by name."""
    if not isinstance(node, DictItems):
        raise TypeError("what has names is a table")
    named_items = zip(node.keys, node.items, strict=True)
    return {str(name): item for name, item in named_items if isinstance(item, TensorView)}


class AnswerPair(NamedTuple):
    """An expected leaf, and the runner's answer for the leaf."""

    path: str
    expected: Value
    answer: Node


def pair_up(expected: Value, answer: Node, path: str = "output") -> list[AnswerPair] | Finding:
    """Compare an answer's structure with the expected structure: number, nesting and keys must agree.

    The items of a dict are paired by key, in the expected order.
    """
    match answer:
        case Items(is_tuple=is_tuple, items=items) if isinstance(expected, tuple if is_tuple else list):
            if len(items) != len(expected):
                return _structure(path, f"{len(expected)} values", f"{len(items)}")
            children: list[tuple[str, int | str, Node]] = [
                (f"{path}[{index}]", index, item) for index, item in enumerate(items)
            ]
        case DictItems(keys=keys, items=items) if isinstance(expected, Mapping):
            by_key = dict(zip(keys, items, strict=False))
            if by_key.keys() != expected.keys() or not len(by_key) == len(keys) == len(items):
                return _other_keys(path, list(expected), keys)
            children = [(f"{path}.{key}", key, by_key[key]) for key in expected]
        case _ if isinstance(expected, list | tuple | Mapping) or isinstance(answer, Items | DictItems):
            return _structure(path, _kind(expected), _kind_of_node(answer))
        case _:
            return [AnswerPair(path, expected, answer)]
    pairs: list[AnswerPair] = []
    for child_path, key, item in children:
        below = pair_up(expected[key], item, child_path)
        if isinstance(below, Finding):
            return below
        pairs += below
    return pairs


def _writable(tensor: torch.Tensor, path: str) -> torch.Tensor:
    """Return a tensor for elementwise writes: a copy of an expanded or lazily conjugated tensor."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise ProblemError(f"{path} is a {tensor.layout} tensor; a runner receives dense tensors only")
    tensor = tensor.resolve_conj().resolve_neg()
    overlapping = any(step == 0 and size > 1 for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.contiguous() if overlapping else tensor


def extent_bytes(tensor: torch.Tensor) -> int:
    """Return the extent of a tensor in memory, including gaps between elements."""
    if tensor.numel() == 0:
        return 0
    span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return span * tensor.element_size()


def _lead_bytes(tensor: torch.Tensor) -> int:
    """Return the distance of a tensor's start from the aligned address before."""
    return int(tensor.storage_offset()) * tensor.element_size() % ALIGNMENT_BYTES


def _structure(path: str, expected: str, actual: str) -> Finding:
    return finding(Code.WRONG_STRUCTURE, f"{path} should be {expected}, but is {actual[:300]}", path=path)


def _other_keys(path: str, expected: list[Any], keys: list[int | str]) -> Finding:
    missing = [key for key in expected if key not in keys]
    extra = [key for key in keys if key not in expected]
    parts = [f"lacks {missing}"] * bool(missing) + [f"has {extra[:20]} in addition"] * bool(extra)
    return _structure(
        path, f"a dict with the keys {expected}", f"{keys[:20]}: " + " and ".join(parts or ["not a dict"])
    )


def _kind(value: Value) -> str:
    if isinstance(value, Mapping):
        return f"a dict of {len(value)}"
    return f"a {type(value).__name__} of {len(value)}" if isinstance(value, list | tuple) else "a single value"


def _kind_of_node(node: Node) -> str:
    match node:
        case Items(is_tuple=is_tuple, items=items):
            return f"a {'tuple' if is_tuple else 'list'} of {len(items)}"
        case DictItems(items=items):
            return f"a dict of {len(items)}"
        case TensorView():
            return "a tensor"
        case Scalar(value=value):
            return f"a {type(value).__name__}"
        case Opaque(type_name=name):
            return f"a {name}"
