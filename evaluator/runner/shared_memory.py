"""Shared memory of a runner: the input region, and an arena for outputs."""

import ctypes
import mmap
import os
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch

from evaluator.devices.memory import ALIGNMENT_BYTES, host_tensor
from evaluator.protocol.frames import Load
from evaluator.runner.device_arena import Gate, GpuArena
from evaluator.runner.emulated.emulation import Emulation


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
