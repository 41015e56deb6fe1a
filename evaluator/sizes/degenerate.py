"""Dimensions reduced to 1 by a small size: a kernel that sums or broadcasts along the wrong dimension is then correct.

The shapes of each operation at both sizes are compared. Only dimensions larger at full size count: a dimension of 1 at
both sizes belongs to the problem.
"""

import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple

import torch

from evaluator.protocol.operations import OperationMode
from evaluator.protocol.pytree import tensors_of

FILE = "reference.py"
"""File name under which a reference is compiled, used to find the line of an operation."""

_Shape = tuple[int, ...]


class Degenerate(NamedTuple):
    """A dimension of an operation's tensor that is 1 (or empty) at the small size and larger at full size.

    `full` is None if the full size is unknown.
    """

    line: int
    operation: str
    tensor: int
    dimension: int
    full: int | None


class TooLarge(MemoryError):
    """A run of a reference with more elements than permitted."""


class Operation(NamedTuple):
    """An operation call: its line in the reference, and the shapes of all its inputs and outputs.

    `groups`, for a group norm, is the number of groups and of channels per group: no dimension of any tensor.
    """

    line: int
    name: str
    shapes: tuple[_Shape, ...]
    groups: _Shape = ()


class Operations(OperationMode):
    """Recorder of all operations in a forward with their shapes, and of the total number of output elements."""

    def __init__(self, most: float = math.inf) -> None:
        """Start without operations. An operation that brings the elements beyond `most` raises TooLarge."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._most = most
        self.operations: list[Operation] = []
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run and record an operation."""
        result = func(*args, **(kwargs or {}))
        inputs = tensors_of([list(args), dict(kwargs or {})])
        outputs = tensors_of(result)
        name = func.overloadpacket.__name__
        groups = (args[6], args[4] // args[6]) if name == "native_group_norm" else ()
        self.operations.append(Operation(_line(), name, tuple(map(_shape, (*inputs, *outputs))), groups))
        self.elements += sum(tensor.numel() for tensor in outputs)
        if self.elements > self._most:
            raise TooLarge
        return result


def _shape(tensor: torch.Tensor) -> _Shape:
    """Return the shape of a tensor; a nested tensor has none."""
    return () if tensor.is_nested else tuple(tensor.shape)


def made_one(small: Sequence[Operation], full: Sequence[Operation] | None) -> list[Degenerate]:
    """Return the dimensions that are 1 or empty in operations at a small size, and larger at full size.

    Operations with the same line and name correspond. If the full size has no such operation, or is unknown (None),
    every dimension of 1 counts, because no dimension can be attributed to the problem.
    """
    dimensions: dict[tuple[int, str, int, int], Degenerate] = {}
    for dimension in _unmatched(small) if full is None else _matched(small, full):
        dimensions.setdefault(dimension[:4], dimension)
    return list(dimensions.values())


def _unmatched(small: Sequence[Operation]) -> Iterator[Degenerate]:
    for operation in small:
        for tensor, shape in enumerate(operation.shapes):
            for dimension, least in enumerate(shape):
                if least <= 1:
                    yield Degenerate(operation.line, operation.name, tensor, dimension, None)


def _matched(small: Sequence[Operation], full: Sequence[Operation]) -> Iterator[Degenerate]:
    full_by_key = by_place(full)
    for key, ones in by_place(small).items():
        if key not in full_by_key:
            yield from _unmatched(ones)
            continue
        for small_op, full_op in _pairs(ones, full_by_key[key]):
            pairs = zip((*small_op.shapes, small_op.groups), (*full_op.shapes, full_op.groups), strict=False)
            for tensor, (shape, full_shape) in enumerate(pairs):
                if len(shape) != len(full_shape):
                    continue
                for dimension, (least, most) in enumerate(zip(shape, full_shape, strict=True)):
                    if least <= 1 < most:
                        yield Degenerate(small_op.line, small_op.name, tensor, dimension, most)


def by_place(operations: Sequence[Operation]) -> dict[tuple[int, str], list[Operation]]:
    """Return the operations by line and name."""
    grouped: dict[tuple[int, str], list[Operation]] = {}
    for operation in operations:
        grouped.setdefault((operation.line, operation.name), []).append(operation)
    return grouped


def _pairs(small: list[Operation], full: list[Operation]) -> Iterator[tuple[Operation, Operation]]:
    """Pair the calls of a line; in a loop with more iterations at full size, pair the first and the last calls."""
    if len(small) == len(full):
        return zip(small, full, strict=True)
    ends = min(len(small), len(full)) // 2 + 1
    return itertools.chain(
        zip(small[:ends], full[:ends], strict=False), zip(small[: -ends - 1 : -1], full[: -ends - 1 : -1], strict=False)
    )


def _line() -> int:
    """Return the line of the reference that is executing; 0 outside the reference."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - as documented
    while frame is not None and frame.f_code.co_filename != FILE:
        frame = frame.f_back
    return 0 if frame is None else frame.f_lineno
