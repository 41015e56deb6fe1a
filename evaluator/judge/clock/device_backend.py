"""Backends of the devices: tensor memory, shared memory, clock, comparison and limits of a runner."""

import contextlib
import os
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import psutil
import torch

from evaluator.compile.device_builders import DeviceBuilders
from evaluator.devices.memory import (
    MAX_CALLS,
    PAGE_BYTES,
    DeviceRegion,
    HostRegion,
    SharedMemory,
    room_for,
    sealed_file,
)
from evaluator.judge.clock.clock import Clock
from evaluator.judge.clock.gpu_session import RUNNER_LIMITS
from evaluator.judge.clock.host_clock import HostClock
from evaluator.judge.clock.sealed_clock import SealedClock
from evaluator.judge.compare.fused_kernel import FusedComparison
from evaluator.judge.compare.tensor_comparison import Comparison, begin
from evaluator.judge.runners.runner_client import RunnerClient
from evaluator.records import L2Inputs, L2Rule
from evaluator.sandbox import Limits

# Address space for torch, its threads and a submission's own memory, beyond the problem's tensors.
_RUNNER_BYTES = 16 << 30
# The arena holds the outputs of two calls, gradients, weights and workspaces. Unused pages cost nothing.
_ARENA_FACTOR = 8
# Arena space for a forward's allocations besides outputs: cuBLAS alone takes 32 MiB on Hopper.
_ARENA_SLACK_BYTES = 256 << 20
# GPU memory of a context with CUDA's libraries; host memory of a process with PyTorch.
_CONTEXT_BYTES = 1 << 30
_RUNNER_BASE_BYTES = 512 << 20
# Limit of all idle runners together: a quarter of the GPU's memory, but at least 6 GiB.
_PART_OF_GPU = 4
_WAITING_BYTES = 6 << 30
# Space for input addresses that change from call to call: a quarter of a million places.
_ROTATION_BYTES = 64 << 20
# Larger probes no longer increase the time of a first access after a context switch (measured).
_PROBE_BYTES = 32 << 20
# Limits for the calls of a window: their inputs (the judge's and the runner's) and their outputs (of two windows). A
# window of a few calls may take more: a single call of half a gigabyte takes 0.2 ms, and is known to 15 us.
_WINDOW_BYTES = 2 << 30
_FEW_CALLS, _FEW_CALLS_BYTES = 4, 6 << 30
_PART_FOR_WINDOWS = 12
# Part of the L2 cache that holds warm inputs and outputs. Each half of a large GPU's cache may hold a copy of a line.
_WARM_PART_OF_L2 = 2
_FEWEST_CALLS = 2


class CallSizes(NamedTuple):
    """Upper bounds of one call's traffic in bytes; on a GPU, also of memory use.

    `peak_bytes` is the reference's peak besides inputs and weights: outputs, temporaries and workspaces. `state_bytes`
    are weights. `judge_bytes` is the judge's own memory, `plain_judge_bytes` the judge's memory without float64.
    """

    input_bytes: int
    output_bytes: int
    peak_bytes: int = 0
    judge_bytes: int = 0
    plain_judge_bytes: int = 0
    state_bytes: int = 0

    @property
    def runner_bytes(self) -> int:
        """GPU memory of a runner: two sets of inputs with space to move, outputs of two calls, weights, and a context.

        Temporaries are not included.
        """
        inputs_bytes = 2 * (self.input_bytes + _ROTATION_BYTES)
        return inputs_bytes + 2 * (self.output_bytes + self.state_bytes) + _ARENA_SLACK_BYTES + _CONTEXT_BYTES

    def window_calls(self, size_bytes: int) -> int:
        """Return how many calls a window may have within `size_bytes` of spare GPU memory, at least 1."""
        once_bytes = max(2 * (self.input_bytes + self.output_bytes), 1)
        many, few = (min(limit, size_bytes) // once_bytes for limit in (_WINDOW_BYTES, _FEW_CALLS_BYTES))
        return max(min(max(many, min(few, _FEW_CALLS)), MAX_CALLS), 1)

    def warm_calls(self, l2_bytes: int) -> int:
        """Return how many calls of a window can have warm inputs in an L2 cache, at least 1."""
        once_bytes = self.input_bytes - self.state_bytes + self.output_bytes
        return max(self._room_in(l2_bytes) // max(once_bytes, 1), 1)

    def warm_bytes(self, l2_bytes: int, calls: int) -> int:
        """Return how much of each call's inputs a cache holds beside the outputs of a window of `calls`."""
        return max(self._room_in(l2_bytes) // calls - self.output_bytes, 0)

    def _room_in(self, l2_bytes: int) -> int:
        """Return the part of an L2 cache for inputs and outputs. The calls of a window share their weights."""
        return max(l2_bytes // _WARM_PART_OF_L2 - self.state_bytes, 0)

    @property
    def temporary_bytes(self) -> int:
        """Peak memory of the reference besides inputs, weights and outputs."""
        return max(self.peak_bytes - self.output_bytes, 0)


class DeviceBackend(Protocol):
    """Device of a grade, as seen by the judge."""

    limits: Limits
    compare: Comparison

    @property
    def l2(self) -> L2Inputs | None:
        """Inputs of a timed call in the L2 cache; None without a GPU."""

    @property
    def kernels(self) -> bytes | None:
        """Cubin of the judge's own kernels for the GPU of the grade."""

    def memory(self) -> contextlib.AbstractContextManager[SharedMemory]:
        """Allocate the shared memory of one runner."""

    def clock(self, session: RunnerClient, memory: SharedMemory) -> contextlib.AbstractContextManager[Clock]:
        """Create the clock of one runner."""

    def room_for(self, runners: int) -> bool:
        """Return whether `runners` concurrent runners leave enough of the free memory."""


class HostBackend:
    """Backend of the devices `cpu` and `emulated`."""

    kernels = None
    l2 = None

    def __init__(self, sizes: CallSizes, device_builders: DeviceBuilders) -> None:
        """Plan memory for calls of the given sizes."""
        self._sizes = sizes
        self._library = device_builders.library
        inputs, self._copy_bytes = room_for(sizes.input_bytes), room_for(sizes.output_bytes)
        self._region_bytes = inputs, self._copy_bytes + _ARENA_FACTOR * (self._copy_bytes + inputs)
        self.compare: Comparison = begin
        memory_bytes = _RUNNER_BYTES + 4 * sum(self._region_bytes)
        self.limits = Limits(memory_bytes=memory_bytes, held_bytes=memory_bytes)

    @contextlib.contextmanager
    def memory(self) -> Iterator[SharedMemory]:
        """Allocate sealed host memory."""
        inputs, outputs = (HostRegion(size_bytes) for size_bytes in self._region_bytes)
        with contextlib.closing(inputs), contextlib.closing(outputs):
            yield SharedMemory(inputs, outputs, self._copy_bytes, self._library, 2 * self._copy_bytes)

    def clock(self, session: RunnerClient, memory: SharedMemory) -> contextlib.AbstractContextManager[Clock]:
        """Create a clock that stops the runner between calls."""
        return contextlib.nullcontext(HostClock(session, memory.outputs))

    def room_for(self, runners: int) -> bool:
        """Return whether the runners fit into half of the available memory.

        A runner needs inputs, outputs of two calls, an equal amount for temporaries, and memory for PyTorch.
        """
        runner_bytes = 2 * (self._sizes.input_bytes + 2 * self._sizes.output_bytes) + _RUNNER_BASE_BYTES
        return runners * runner_bytes <= psutil.virtual_memory().available // 2


def comparison_on_gpu(device_builders: DeviceBuilders) -> Comparison:
    """Return the comparison by the judge's kernels."""
    return FusedComparison(_kernels_of(device_builders)).begin


def _kernels_of(device_builders: DeviceBuilders) -> bytes:
    if device_builders.kernels is None:
        raise TypeError("a GPU needs the judge's kernels")
    return device_builders.kernels


class GpuBackend:
    """Backend of the device `cuda`."""

    limits = RUNNER_LIMITS

    def __init__(self, sizes: CallSizes, device_builders: DeviceBuilders, l2: L2Rule = L2Rule.COLD) -> None:
        """Plan memory for calls of the given sizes. The judge must not have reserved its own memory yet.

        With warm inputs, a window has only as many calls as the L2 cache holds inputs and outputs of, or two.

        The arena holds the outputs of two calls: outputs of the last call stay alive, to detect outputs that share
        memory. Temporaries are allocated before outputs. The arena therefore has room for twice the reference's
        temporaries, because the allocator keeps unusable fragments. Large temporaries get half of the remaining memory,
        or room for one set if larger: a submission may need memory of its own. In a smaller arena, temporaries may
        displace outputs (T304). The arena also holds the weights, so that the judge can change them, and an equal
        amount for tensors that a constructor derives from the weights.
        """
        self.kernels = _kernels_of(device_builders)
        self.compare = comparison_on_gpu(device_builders)
        self._library = device_builders.library
        self._probe_bytes = max(min(sizes.input_bytes, _PROBE_BYTES) // 4 * 4, 4)
        free_bytes, _ = torch.cuda.mem_get_info()
        spare_bytes = max(free_bytes - sizes.judge_bytes - sizes.runner_bytes, 0)
        self.window_calls = sizes.window_calls(spare_bytes // _PART_FOR_WINDOWS)
        self.l2, self._warm_bytes = L2Inputs(rule=l2), 0
        if l2 is L2Rule.WARM:
            l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
            self.window_calls = min(self.window_calls, max(sizes.warm_calls(l2_bytes), _FEWEST_CALLS))
            self._warm_bytes = sizes.warm_bytes(l2_bytes, self.window_calls)
            fits = sizes.input_bytes - sizes.state_bytes <= self._warm_bytes
            self.l2 = L2Inputs(rule=l2, limit_bytes=None if fits else self._warm_bytes)
        self._input_bytes = self.window_calls * sizes.input_bytes + _ROTATION_BYTES
        self._output_bytes = sizes.output_bytes
        once_bytes = min(sizes.temporary_bytes, spare_bytes)
        room_bytes = min(2 * sizes.temporary_bytes, max(spare_bytes // 2, once_bytes))
        outputs_bytes = (self.window_calls + 1) * sizes.output_bytes if self.window_calls > 1 else sizes.output_bytes
        self._arena_bytes = _ARENA_SLACK_BYTES + 2 * (outputs_bytes + sizes.state_bytes) + room_bytes

    @contextlib.contextmanager
    def memory(self) -> Iterator[SharedMemory]:
        """Allocate GPU memory, and a host page for the queue's flags."""
        with contextlib.ExitStack() as stack:
            inputs = stack.enter_context(contextlib.closing(DeviceRegion(0, self._input_bytes)))
            outputs = stack.enter_context(contextlib.closing(DeviceRegion(0, self._arena_bytes)))
            page = stack.enter_context(contextlib.closing(HostRegion(PAGE_BYTES)))
            kernels = sealed_file(self.kernels)
            stack.callback(os.close, kernels)
            yield SharedMemory(
                inputs,
                outputs,
                self._output_bytes,
                self._library,
                self._output_bytes,
                page,
                self._probe_bytes,
                kernels,
                self.window_calls,
                self._warm_bytes,
            )

    def clock(self, session: RunnerClient, memory: SharedMemory) -> contextlib.AbstractContextManager[Clock]:
        """Create a sealed clock."""
        return contextlib.closing(SealedClock(session, memory, self.kernels))

    def room_for(self, runners: int) -> bool:
        """Return whether the runners fit into half of the free memory, and into the limit of idle runners.

        A runner needs inputs, the same size for weights, an arena and a context. Large problems use one runner at a
        time: three runners would take three times the memory of a grade.
        """
        runner_bytes = 2 * self._input_bytes + self._arena_bytes + _CONTEXT_BYTES
        free_bytes, total_bytes = torch.cuda.mem_get_info()
        waiting_bytes = max(total_bytes // _PART_OF_GPU, _WAITING_BYTES)
        return runners * runner_bytes <= min(free_bytes // 2, waiting_bytes)
