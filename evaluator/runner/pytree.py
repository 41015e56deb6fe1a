"""Conversion between frame value trees and tensors in shared memory, on the runner's side."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from msgspec.structs import replace

from evaluator.devices.memory import strided
from evaluator.protocol.frames import Items, Node, Opaque, Scalar, Table, TensorView
from evaluator.protocol.frames.bounds import MOST_DEPTH
from evaluator.runner.emulated.fake_cuda import real_device

if TYPE_CHECKING:
    from evaluator.runner.shared_memory import Arena

_MAX_TEXT = 4096
_MAX_NAME = 1024


def to_value(node: Node, region: torch.Tensor) -> Any:
    """Build the Python value described by a node, with tensors as views of `region`."""
    match node:
        case TensorView():
            return to_tensor(node, region)
        case Scalar(value=value):
            return value
        case Items(is_tuple=is_tuple, items=items):
            values = [to_value(item, region) for item in items]
            return tuple(values) if is_tuple else values
        case Table(keys=keys, items=items):
            return {key: to_value(item, region) for key, item in zip(keys, items, strict=True)}
        case Opaque(type_name=name):
            raise TypeError(f"the judge cannot send a {name}")


def to_tensor(view: TensorView, region: torch.Tensor) -> torch.Tensor:
    """Return the view of `region` described by `view`."""
    if view.offset_bytes is None:
        raise ValueError("a tensor without a place")
    return strided(region, getattr(torch, view.dtype), view.shape, view.strides, view.offset_bytes)


class Outbox:
    """Converts the outputs of one call to frame nodes, copying tensors outside shared memory.

    The copy runs inside the timed interval, at the submission's expense.
    """

    def __init__(self, arena: "Arena") -> None:
        """Copy into `arena`."""
        self._arena = arena

    def from_value(self, value: Any, depth: int = 0) -> Node:
        """Describe an output, copying its tensors if necessary."""
        if isinstance(value, torch.Tensor):
            return self.from_tensor(value)
        if value is None or isinstance(value, bool):
            return Scalar(value=value)
        if isinstance(value, float):
            return Scalar(value=float(value))  # Converts numpy.float64, which no frame can hold.
        if isinstance(value, int) and abs(value) < 2**63:
            return Scalar(value=int(value))
        if isinstance(value, str) and len(value) <= _MAX_TEXT:
            return Scalar(value=str(value))
        if depth < MOST_DEPTH and isinstance(value, list | tuple):
            items = [self.from_value(item, depth + 1) for item in value]
            return Items(is_tuple=isinstance(value, tuple), items=items)
        if depth < MOST_DEPTH and isinstance(value, Mapping):
            keys = [key if isinstance(key, int) and abs(key) < 2**63 else str(key)[:_MAX_NAME] for key in value]
            return Table(keys=keys, items=[self.from_value(item, depth + 1) for item in value.values()])
        return Opaque(type_name=type(value).__name__[:_MAX_NAME])

    def place_of(self, tensor: torch.Tensor) -> TensorView:
        """Describe a tensor in place, without copying."""
        view = _view_of(tensor)
        is_near = view.device == self._arena.device
        return replace(view, offset_bytes=self._arena.offset_bytes(tensor)) if is_near else view

    def from_tensor(self, tensor: torch.Tensor) -> TensorView | Opaque:
        """Describe a tensor, copying if necessary. Tensors without strided memory are reduced to their type name.

        So are tensors of a subclass that stays one in `readable`: each question of the memory may have another answer.
        """
        if type(tensor) is not torch.Tensor:
            return Opaque(type_name=type(tensor).__name__[:_MAX_NAME])
        tensor = tensor.detach()
        if tensor.layout is not torch.strided or tensor.is_quantized:
            return Opaque(type_name=f"{tensor.layout} tensor")
        view = _view_of(tensor)
        if view.device != self._arena.device:
            return view
        storage = tensor.untyped_storage()
        view = replace(view, storage=(storage.data_ptr(), storage.nbytes()))
        if (offset := self._arena.offset_bytes(tensor)) is not None:
            return replace(view, offset_bytes=offset)
        return replace(view, strides=_contiguous(view.shape), offset_bytes=self._arena.copy(tensor), copied=True)


def _view_of(tensor: torch.Tensor) -> TensorView:
    return TensorView(
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        offset_bytes=None,
        device=real_device(tensor).type,
    )


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
