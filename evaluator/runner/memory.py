"""The shared memory of one runner: inputs to look into, and an arena to answer in."""

import mmap
import os
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch

from evaluator.devices.memory import host_tensor
from evaluator.protocol.frames import Load
from evaluator.runner.arena import HostArena
from evaluator.runner.emulation import Emulation
from evaluator.runner.gpu import Gate, Gpu


class Arena(Protocol):
    """The output region: the allocator's memory, and room for copies of what lies elsewhere."""

    device: str

    def open(self) -> None:
        """Have what is allocated from now on lie in the region, if it does not yet."""

    def poison(self, byte: int, ahead_bytes: int) -> None:
        """Fill free memory, so that what a call does not write is not an earlier call's result."""

    def offset_bytes(self, tensor: torch.Tensor) -> int | None:
        """Say where in the region a tensor lies, if it lies there whole."""

    def probe(self, *, forked: bool) -> None:
        """Do the work of an empty call, which the judge knows the time of; `forked`, on a stream of its own."""

    def copy(self, tensor: torch.Tensor) -> int | None:
        """Copy a tensor into the region, contiguous; None where there is no room left."""


class Shared(NamedTuple):
    """What the judge shares. `gate` is where calls wait for their inputs on a GPU; `emulation` runs them on a CPU."""

    inputs: torch.Tensor
    arena: Arena
    gate: Gate | None
    emulation: Emulation | None


def take_over(frame: Load, descriptors: list[int], make_room: Callable[[], None]) -> Shared:
    """Map what came with `frame`. `make_room` lets go of earlier outputs, when there is no room for a copy."""
    inputs, outputs, *others = descriptors
    if frame.device == "cuda":
        gpu = Gpu(frame, inputs, outputs, library=others[0], page=others[1], make_room=make_room)
        return Shared(gpu.inputs, gpu, gpu.gate, None)
    arena = HostArena(_mapped(outputs, frame.output_bytes), frame.copy_bytes)
    emulation = None
    if frame.library and frame.device == "emulated":
        emulation = Emulation(others[0])
    elif frame.library:
        arena.install(others[0])
    return Shared(_mapped(inputs, frame.input_bytes), arena, None, emulation)


def _mapped(descriptor: int, size_bytes: int) -> torch.Tensor:
    tensor = host_tensor(mmap.mmap(descriptor, size_bytes))
    os.close(descriptor)
    return tensor
