"""What a device brings to a grade: where tensors live, the memory that is shared, the clock, and a runner's limits."""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import psutil
import torch

from evaluator.compile.device_builders import DeviceBuilders
from evaluator.devices.memory import DeviceRegion, HostRegion, SharedMemory, room_for
from evaluator.devices.page import PAGE_BYTES
from evaluator.judge.backend.gpu_session import RUNNER_LIMITS
from evaluator.judge.clock.clock import Clock
from evaluator.judge.clock.host_clock import HostClock
from evaluator.judge.clock.sealed_clock import SealedClock
from evaluator.judge.compare.fused_kernel import FusedComparison
from evaluator.judge.compare.tensor_comparison import Comparison, begin
from evaluator.judge.runners.runner_client import RunnerClient
from evaluator.sandbox import Limits

# Address space for torch, its threads and a submission's own memory, beside the tensors of the problem.
_RUNNER_BYTES = 16 << 30
# The allocator's arena holds outputs of two calls, gradients, weights and workspaces; its pages cost nothing unused.
_ARENA_FACTOR = 8
# What a forward allocates beside its outputs and should find in the arena too: cuBLAS alone takes 32 MiB on Hopper.
_ARENA_SLACK_BYTES = 256 << 20
# What a context takes of a GPU, with CUDA's libraries in it; and a process with PyTorch of the host.
_CONTEXT_BYTES = 1 << 30
_RUNNER_BASE_BYTES = 512 << 20
# Runners that wait for their turn may have this part of a GPU's memory together, an eighth; or so much, on a small one.
_PART_OF_GPU = 8
_WAITING_BYTES = 6 << 30
# Room in which the inputs' addresses change from call to call: a quarter of a million places.
_ROTATION_BYTES = 64 << 20
# Beyond this the time of a first access after a change of context no longer grows (measured).
_PROBE_BYTES = 32 << 20


class CallSizes(NamedTuple):
    """What one call moves at most, in bytes; on a GPU, also what it holds.

    `peak_bytes` is what the reference has at its worst moment beside inputs and weights: outputs, temporaries and
    workspaces. `state_bytes` are weights. `judge_bytes` is what the judge keeps for itself, `plain_judge_bytes` what
    it would without float64.
    """

    input_bytes: int
    output_bytes: int
    peak_bytes: int = 0
    judge_bytes: int = 0
    plain_judge_bytes: int = 0
    state_bytes: int = 0

    @property
    def runner_bytes(self) -> int:
        """Count a runner's inputs, twice, with room to move in; outputs of two calls; its weights; a context.

        Temporaries are not among them.
        """
        inputs_bytes = 2 * (self.input_bytes + _ROTATION_BYTES)
        return inputs_bytes + 2 * (self.output_bytes + self.state_bytes) + _ARENA_SLACK_BYTES + _CONTEXT_BYTES

    @property
    def temporary_bytes(self) -> int:
        """Say what the reference has beside inputs, weights and outputs."""
        return max(self.peak_bytes - self.output_bytes, 0)


class DeviceBackend(Protocol):
    """A device as the judge uses it."""

    limits: Limits
    compare: Comparison

    def memory(self) -> contextlib.AbstractContextManager[SharedMemory]:
        """Make the memory for one runner."""

    def clock(self, session: RunnerClient, memory: SharedMemory) -> contextlib.AbstractContextManager[Clock]:
        """Make the clock for one runner."""

    def room_for(self, runners: int) -> bool:
        """Say whether so many runners at once leave enough of the memory that is free now."""


class HostBackend:
    """Devices `cpu` and `emulated`."""

    def __init__(self, sizes: CallSizes, device_builders: DeviceBuilders) -> None:
        """Plan for calls of `sizes`."""
        self._sizes = sizes
        self._library = device_builders.library
        inputs, self._copy_bytes = room_for(sizes.input_bytes), room_for(sizes.output_bytes)
        self._region_bytes = inputs, self._copy_bytes + _ARENA_FACTOR * (self._copy_bytes + inputs)
        self.compare: Comparison = begin
        memory_bytes = _RUNNER_BYTES + 4 * sum(self._region_bytes)
        self.limits = Limits(memory_bytes=memory_bytes, held_bytes=memory_bytes)

    @contextlib.contextmanager
    def memory(self) -> Iterator[SharedMemory]:
        """Make sealed memory of the host."""
        inputs, outputs = (HostRegion(size_bytes) for size_bytes in self._region_bytes)
        with contextlib.closing(inputs), contextlib.closing(outputs):
            yield SharedMemory(inputs, outputs, self._copy_bytes, self._library, 2 * self._copy_bytes)

    def clock(self, session: RunnerClient, memory: SharedMemory) -> contextlib.AbstractContextManager[Clock]:
        """Make a clock that stops the runner between calls."""
        return contextlib.nullcontext(HostClock(session, memory.outputs))

    def room_for(self, runners: int) -> bool:
        """Count a runner's inputs, its outputs of two calls, and as much again for what forward makes on its way."""
        runner_bytes = 2 * (self._sizes.input_bytes + 2 * self._sizes.output_bytes) + _RUNNER_BASE_BYTES
        return runners * runner_bytes <= psutil.virtual_memory().available // 2


class GpuBackend:
    """Device `cuda`."""

    limits = RUNNER_LIMITS

    def __init__(self, sizes: CallSizes, device_builders: DeviceBuilders) -> None:
        """Plan for calls of `sizes`. The judge has not taken what it keeps for itself yet.

        The arena holds the outputs of two calls: the last one's stay alive, so that two which share memory are seen.
        Temporaries come to lie in it before outputs do, so there is room for the reference's, twice, for an allocator
        keeps pieces that fit nothing else. Where they are large they get half of what others leave, or as much as they
        need once: a submission may want memory of its own. Where that is less, they may crowd outputs out (T304).
        Weights lie in it too, so that the judge can change them, with room for as much that a constructor makes of
        them.
        """
        if device_builders.kernels is None:
            raise TypeError("a GPU needs the judge's kernels")
        self._kernels = device_builders.kernels
        self.compare: Comparison = FusedComparison(device_builders.kernels).begin
        self._library = device_builders.library
        self._probe_bytes = max(min(sizes.input_bytes, _PROBE_BYTES) // 4 * 4, 4)
        self._input_bytes = sizes.input_bytes + _ROTATION_BYTES
        self._output_bytes = sizes.output_bytes
        free_bytes, _ = torch.cuda.mem_get_info()
        spare_bytes = max(free_bytes - sizes.judge_bytes - sizes.runner_bytes, 0)
        once_bytes = min(sizes.temporary_bytes, spare_bytes)
        room_bytes = min(2 * sizes.temporary_bytes, max(spare_bytes // 2, once_bytes))
        self._arena_bytes = _ARENA_SLACK_BYTES + 2 * (sizes.output_bytes + sizes.state_bytes) + room_bytes

    @contextlib.contextmanager
    def memory(self) -> Iterator[SharedMemory]:
        """Make memory of the GPU, and a page of the host for the words of its queues."""
        with contextlib.ExitStack() as stack:
            inputs = stack.enter_context(contextlib.closing(DeviceRegion(0, self._input_bytes)))
            outputs = stack.enter_context(contextlib.closing(DeviceRegion(0, self._arena_bytes)))
            page = stack.enter_context(contextlib.closing(HostRegion(PAGE_BYTES)))
            size_bytes = self._output_bytes
            yield SharedMemory(inputs, outputs, size_bytes, self._library, size_bytes, page, self._probe_bytes)

    def clock(self, session: RunnerClient, memory: SharedMemory) -> contextlib.AbstractContextManager[Clock]:
        """Make a sealed clock."""
        return contextlib.closing(SealedClock(session, memory, self._kernels))

    def room_for(self, runners: int) -> bool:
        """Count a runner's inputs, its arena with its temporaries, its context, and for weights as much as the inputs.

        Where they take more than a small part of the GPU, one after the other has it: what a grade takes would be
        three times what it needs.
        """
        runner_bytes = 2 * self._input_bytes + self._arena_bytes + _CONTEXT_BYTES
        free_bytes, total_bytes = torch.cuda.mem_get_info()
        waiting_bytes = max(total_bytes // _PART_OF_GPU, _WAITING_BYTES)
        return runners * runner_bytes <= min(free_bytes // 2, waiting_bytes)
