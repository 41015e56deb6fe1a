"""Shared memory of a runner: the input region, and an arena for outputs."""

import mmap
import os
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch

from evaluator.devices.memory import host_tensor
from evaluator.protocol.frames import Load
from evaluator.runner.device_arena import Gate, GpuArena
from evaluator.runner.emulated.emulation import Emulation
from evaluator.runner.host_arena import HostArena


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
