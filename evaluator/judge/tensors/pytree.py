"""Value trees, on the judge's side: inputs into shared memory, answers held against the expected structure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from evaluator.devices.memory import ALIGNMENT_BYTES, Region, places, strided
from evaluator.errors import ProblemError
from evaluator.findings import Code, finding
from evaluator.protocol.frames import Items, Node, Opaque, Scalar, Table, TensorView
from evaluator.records import Finding

Value = Any
"""A tensor, a plain Python value, or lists, tuples and dicts of them."""


def leaves(value: Value, path: str = "") -> Iterator[tuple[str, Value]]:
    """Walk a value; each leaf with its path, such as `[0].mask`."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    else:
        yield path, value


def tensors(value: Value) -> list[torch.Tensor]:
    """List the tensors of a value, in order."""
    return [leaf for _, leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def plain(value: Value) -> Value:
    """Give a plain value as Python's own type: `numpy.float64` is a float, an IntEnum an int. Others stay.

    >>> plain(True), plain(None)
    (True, None)
    """
    kind = next((kind for kind in (bool, int, float, str) if isinstance(value, kind)), None)
    return value if kind is None else kind(value)


def unravelled(places: torch.Tensor, shape: Sequence[int]) -> tuple[torch.Tensor, ...]:
    """Give the index in each dimension of `places` (int64) in a contiguous tensor of `shape`.

    `torch.unravel_index` does the same, and imports sympy for it: 0.2 to 0.3 s (docs/evidence/grade_speed_h200.md).
    """
    found: list[torch.Tensor] = []
    for size in reversed(shape):
        found.append(places % size)
        places = places // size
    return tuple(reversed(found))


def is_number(value: Value) -> bool:
    """Say whether a plain value is one that rounding may change: a float.

    >>> is_number(0.5), is_number(3), is_number(True)
    (True, False, False)
    """
    return isinstance(value, float)


class LaidOut(NamedTuple):
    """Values and their places in a region: what the runner is told, and where to look whether it changed them.

    Every pair holds a path, the judge's own tensor, and the shared one that is made from it. `weights` lie elsewhere,
    where a runner's model has them, and are the runner's to change.
    """

    nodes: list[Node]
    pairs: list[tuple[str, torch.Tensor, torch.Tensor]]
    weights: Sequence[tuple[torch.Tensor, torch.Tensor]] = ()

    def write(self) -> None:
        """Write the values into the region. On a GPU this is queued on the stream that is current."""
        for own, shared in self.weights:
            shared.copy_(own)
        for _, own, shared in self.pairs:
            shared.copy_(own)


def lay_out(values: list[tuple[str, Value]], region: Region) -> LaidOut:
    """Find places for named values in `region`, at addresses that differ from call to call. Nothing is written yet.

    A tensor that starts somewhere in its storage lies as far behind an aligned address as there.
    """
    found = [_writable(leaf, path) for path, value in values for leaf in tensors(value)]
    offsets = places([_lead_bytes(leaf) + extent_bytes(leaf) for leaf in found], region.size_bytes)
    layout = _Layout(region, offsets)
    return LaidOut([layout.node(value, path) for path, value in values], layout.pairs)


def named_views(node: Node) -> dict[str, TensorView]:
    """Give the tensors of a table by their names."""
    if not isinstance(node, Table):
        raise TypeError("what has names is a table")
    found = zip(node.keys, node.items, strict=True)
    return {str(name): item for name, item in found if isinstance(item, TensorView)}


class _Layout:
    """Lays values out in a region. A class, for a function that calls itself would keep its tensors in a cycle."""

    def __init__(self, region: Region, offsets: Iterator[int]) -> None:
        self._region = region
        self._offsets = offsets
        self.pairs: list[tuple[str, torch.Tensor, torch.Tensor]] = []

    def node(self, value: Value, path: str) -> Node:
        if isinstance(value, torch.Tensor):
            return self._tensor(_writable(value, path), path)
        if isinstance(value, Mapping):
            items = [self.node(item, f"{path}.{key}") for key, item in value.items()]
            return Table(keys=list(value), items=items)
        if isinstance(value, list | tuple):
            items = [self.node(item, f"{path}[{index}]") for index, item in enumerate(value)]
            return Items(is_tuple=isinstance(value, tuple), items=items)
        if value is None or isinstance(value, bool | int | float | str):
            return Scalar(value=plain(value))
        raise ProblemError(
            f"{path} is a {type(value).__name__}, which a runner cannot receive",
            hint="inputs are tensors, numbers, strings, None, and lists, tuples and dicts of them",
        )

    def _tensor(self, value: torch.Tensor, path: str) -> TensorView:
        view = TensorView(
            dtype=dtype_name(value.dtype),
            shape=tuple(value.shape),
            strides=tuple(value.stride()),
            offset_bytes=next(self._offsets) + _lead_bytes(value),
        )
        shared = strided(self._region.flat, value.dtype, view.shape, view.strides, view.offset_bytes or 0)
        self.pairs.append((path, value, shared))
        return view


class Pair(NamedTuple):
    """An expected leaf and what the runner gave in its place."""

    path: str
    expected: Value
    answer: Node


def pair_up(expected: Value, answer: Node, path: str = "output") -> list[Pair] | Finding:
    """Hold an answer's structure against the expected one: number, nesting, keys and order exactly."""
    match answer:
        case Items(is_tuple=is_tuple, items=items) if isinstance(expected, tuple if is_tuple else list):
            if len(items) != len(expected):
                return _structure(path, f"{len(expected)} values", f"{len(items)}")
            children: list[tuple[str, int | str, Node]] = [
                (f"{path}[{index}]", index, item) for index, item in enumerate(items)
            ]
        case Table(keys=keys, items=items) if isinstance(expected, Mapping):
            if list(expected) != keys or len(items) != len(keys):
                return _structure(path, f"the keys {list(expected)}", f"{keys[:20]}")
            children = [(f"{path}.{key}", key, item) for key, item in zip(keys, items, strict=True)]
        case _ if isinstance(expected, list | tuple | Mapping) or isinstance(answer, Items | Table):
            return _structure(path, _kind(expected), _kind_of_node(answer))
        case _:
            return [Pair(path, expected, answer)]
    pairs: list[Pair] = []
    for child_path, key, item in children:
        below = pair_up(expected[key], item, child_path)
        if isinstance(below, Finding):
            return below
        pairs += below
    return pairs


def dtype_name(dtype: torch.dtype) -> str:
    """Spell a dtype as frames and cards do.

    >>> dtype_name(torch.float32)
    'float32'
    """
    return str(dtype).removeprefix("torch.")


def _writable(tensor: torch.Tensor, path: str) -> torch.Tensor:
    """Copy a tensor that cannot be written element by element: an expanded one, or one that is lazily conjugated."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise ProblemError(f"{path} is a {tensor.layout} tensor; a runner receives dense tensors only")
    tensor = tensor.resolve_conj().resolve_neg()
    overlapping = any(step == 0 and size > 1 for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.contiguous() if overlapping else tensor


def extent_bytes(tensor: torch.Tensor) -> int:
    """Say how far a tensor reaches in memory, gaps between its elements included."""
    if tensor.numel() == 0:
        return 0
    span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return span * tensor.element_size()


def _lead_bytes(tensor: torch.Tensor) -> int:
    """Say how far behind an aligned address a tensor starts."""
    return int(tensor.storage_offset()) * tensor.element_size() % ALIGNMENT_BYTES


def _structure(path: str, wanted: str, found: str) -> Finding:
    return finding(Code.WRONG_STRUCTURE, f"{path} should be {wanted}, but is {found[:300]}", path=path)


def _kind(value: Value) -> str:
    if isinstance(value, Mapping):
        return f"a dict of {len(value)}"
    return f"a {type(value).__name__} of {len(value)}" if isinstance(value, list | tuple) else "a single value"


def _kind_of_node(node: Node) -> str:
    match node:
        case Items(is_tuple=is_tuple, items=items):
            return f"a {'tuple' if is_tuple else 'list'} of {len(items)}"
        case Table(items=items):
            return f"a dict of {len(items)}"
        case TensorView():
            return "a tensor"
        case Scalar(value=value):
            return f"a {type(value).__name__}"
        case Opaque(type_name=name):
            return f"a {name}"
