"""Shared memory of a runner: the input region, an arena for outputs, and values of frames with tensors there."""

import ctypes
import mmap
import os
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from msgspec.structs import replace

from evaluator.devices.memory import ALIGNMENT_BYTES, host_tensor, strided
from evaluator.protocol.frames import DictItems, Items, Load, Node, Opaque, Scalar, TensorView
from evaluator.protocol.pytree import node_of, view_of
from evaluator.runner.device_arena import Gate, GpuArena
from evaluator.runner.emulation import Emulation, real_device


class HostArena:
    """Output region on the host. Without the allocator library, the runner copies every output."""

    device = "cpu"

    def __init__(self, region: torch.Tensor, copy_bytes: int) -> None:
        """Reserve the first `copy_bytes` of `region`, a byte tensor, for copies."""
        self._region = region
        self._copy_bytes = copy_bytes
        self._copied_bytes = 0
        self._most_copied_bytes = 0
        self._library: ctypes.CDLL | None = None

    def install(self, descriptor: int) -> None:
        """Allocate all further CPU tensors in the region, behind the space for copies."""
        library = ctypes.CDLL(f"/proc/self/fd/{descriptor}")
        os.close(descriptor)
        start = self._region.data_ptr() + self._copy_bytes
        room_bytes = self._region.numel() - self._copy_bytes
        library.warpgrade_arena_install(ctypes.c_void_p(start), ctypes.c_uint64(room_bytes))
        self._library = library

    def open(self) -> None:
        """Do nothing: after `install`, every tensor lies in the region."""

    def poison(self, byte: int, ahead_bytes: int) -> None:
        """Fill free memory with `byte`, so unwritten output elements cannot contain an earlier call's result."""
        self._region[: self._most_copied_bytes].fill_(byte)
        self._copied_bytes = 0
        if self._library is not None:
            self._library.warpgrade_arena_poison(ctypes.c_int(byte), ctypes.c_uint64(ahead_bytes))

    def offset_bytes(self, tensor: torch.Tensor) -> int | None:
        """Return a tensor's offset in the region; None unless the region contains the whole storage."""
        if self._library is None or tensor.numel() == 0:  # Empty tensors have no address.
            return None
        base = self._region.data_ptr()
        storage = tensor.untyped_storage()
        first = storage.data_ptr() - base
        inside = self._copy_bytes <= first and first + storage.nbytes() <= self._region.numel()
        return tensor.data_ptr() - base if inside else None

    def probe(self, *, forked: bool) -> None:
        """Do nothing: on the host an empty call has no work."""

    def copy(self, tensor: torch.Tensor) -> int | None:
        """Copy a tensor into the copy space, contiguous; return None if the space is exhausted."""
        size_bytes = tensor.numel() * tensor.element_size()
        offset = self._copied_bytes
        if offset + size_bytes > self._copy_bytes:
            return None
        if size_bytes:
            target = self._region[offset : offset + size_bytes].view(tensor.dtype)
            target.view(tensor.shape).copy_(tensor)
        self._copied_bytes = -(-(offset + size_bytes) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self._most_copied_bytes = max(self._most_copied_bytes, self._copied_bytes)
        return offset


class Arena(Protocol):
    """Output region: allocator memory, and space for copies of tensors outside the region."""

    device: str

    def open(self) -> None:
        """Allocate further tensors in the region."""

    def poison(self, byte: int, ahead_bytes: int) -> None:
        """Fill free memory with `byte`, so unwritten output elements cannot contain an earlier call's result."""

    def offset_bytes(self, tensor: torch.Tensor) -> int | None:
        """Return a tensor's offset in the region; None unless the region contains the whole storage."""

    def probe(self, *, forked: bool) -> None:
        """Do the work of an empty call, whose duration the judge knows; `forked`: on a side stream."""

    def copy(self, tensor: torch.Tensor) -> int | None:
        """Copy a tensor into the region, contiguous; return None if the region is full."""


class Shared(NamedTuple):
    """Shared memory, `gate` (on `cuda`: calls wait at the gate for their inputs) and `emulation` (on `emulated`)."""

    inputs: torch.Tensor
    arena: Arena
    gate: Gate | None
    emulation: Emulation | None


def take_over(frame: Load, descriptors: list[int], make_room: Callable[[], None]) -> Shared:
    """Map the descriptors of `frame`. `make_room` frees earlier outputs if a copy does not fit."""
    inputs, outputs, *fds = descriptors
    if frame.device == "cuda":
        gpu = GpuArena(frame, inputs, outputs, library=fds[0], page=fds[1], kernels=fds[2], make_room=make_room)
        return Shared(gpu.inputs, gpu, gpu.gate, None)
    arena = HostArena(_mapped(outputs, frame.output_bytes), frame.copy_bytes)
    emulation = None
    if frame.library and frame.device == "emulated":
        emulation = Emulation(fds[0])
    elif frame.library:
        arena.install(fds[0])
    return Shared(_mapped(inputs, frame.input_bytes), arena, None, emulation)


def _mapped(descriptor: int, size_bytes: int) -> torch.Tensor:
    tensor = host_tensor(mmap.mmap(descriptor, size_bytes))
    os.close(descriptor)
    return tensor


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
        case DictItems(keys=keys, items=items):
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
