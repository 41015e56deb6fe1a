"""Values of frames, with tensors in shared memory, on the runner's side."""

from typing import TYPE_CHECKING, Any

import torch
from msgspec.structs import replace

from evaluator.devices.memory import strided
from evaluator.protocol.frames import Items, Node, Opaque, Scalar, Table, TensorView
from evaluator.protocol.pytree import node_of, view_of
from evaluator.runner.emulated.fake_cuda import real_device

if TYPE_CHECKING:
    from evaluator.runner.shared_memory import Arena

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

    def from_value(self, value: Any) -> Node:
        """Describe an output, copying its tensors if necessary."""
        return node_of(value, lambda tensor, _: self.from_tensor(tensor), lambda other, _: _opaque(other))

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
            return _opaque(tensor)
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


def _opaque(value: Any) -> Opaque:
    return Opaque(type_name=type(value).__name__[:_MAX_NAME])


def _view_of(tensor: torch.Tensor) -> TensorView:
    return replace(view_of(tensor), device=real_device(tensor).type)


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
