"""A grade's foothold on its GPU: the lease, the judge's context, runners with theirs, and a watch over the GPU.

Nothing of it needs PyTorch, so a lone grade has it by the time that PyTorch is imported.
"""

import contextlib
import os
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from evaluator.devices import driver
from evaluator.devices.gpu import Gpu, show_only
from evaluator.errors import JudgeFailed
from evaluator.judge.backend.gpu_lease import GpuLease
from evaluator.judge.backend.gpu_monitor import GpuMonitor
from evaluator.judge.runners.runner_client import RUNNER, RunnerClient
from evaluator.judge.runners.runner_pool import RunnerPool
from evaluator.records import DeviceKind
from evaluator.sandbox import ForkServer, Limits

RUNNER_LIMITS = Limits(memory_bytes=1 << 46, held_bytes=32 << 30)
"""CUDA reserves addresses for all memory of every GPU: a tighter limit on address space says nothing there."""
_FIRST = 4
"""Runners that the first grade takes: the submission's for check and timing, the reference's two."""


class GpuSession:
    """What a judge has of one GPU. A context manager: leaving it ends its runners, then gives the GPU back."""

    def __init__(self, gpu: Gpu, fork_server: ForkServer, *, runner_pool: int = 0) -> None:
        """Have nothing yet.

        Runners come from `fork_server`; so many `runner_pool` are made again when they are taken.
        """
        os.environ.update(show_only(gpu.uuid))
        self._gpu = gpu
        self._fork_server = fork_server
        self._ours: frozenset[int] = frozenset()
        self._leaving = False
        self._gpu_lease = GpuLease(gpu, self._bring_up)
        self.runner_pool = RunnerPool(self._empty_runner, DeviceKind.CUDA, runner_pool)
        self.watch: GpuMonitor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def reach(self) -> None:
        """Have contexts made on the GPU in a thread, if nobody else wants it meanwhile."""
        self._gpu_lease.reach(self._make_context)

    @contextlib.contextmanager
    def standing(self) -> Iterator[bool]:
        """Say whether the judge can work on the GPU by now, which is given to nobody while this lasts.

        Runners may still be missing.
        """
        with self._gpu_lease.kept() as held:
            yield held and self.watch is not None

    def settle(self) -> None:
        """Have the GPU until `close`, with contexts on it. One that another grade has is waited for."""
        self._gpu_lease.settle()

    def close(self) -> None:
        """End the runners that nobody took, and give the GPU back. Calling it again changes nothing."""
        self._leaving = True
        with contextlib.ExitStack() as leaving:
            leaving.callback(self._gpu_lease.close)
            leaving.callback(self.runner_pool.close)
            leaving.callback(self._gpu_lease.rest)

    def begin_watch(self) -> None:
        """Look at the GPU before anything of a grade runs on it."""
        self.watch = GpuMonitor(self._gpu, self._own_processes)

    def count_as_ours(self, processes: frozenset[int]) -> None:
        """Take note of processes that are kept on the GPU from one submission to the next."""
        self._ours |= processes

    def _own_processes(self) -> frozenset[int]:
        return self._ours | self.runner_pool.processes

    def _make_context(self) -> None:
        """Have the judge's own, for which no starter is needed. What fails here fails again where it counts."""
        with contextlib.suppress(driver.DriverError, OSError):
            driver.make_context()

    def _bring_up(self) -> None:
        """Look at the GPU, and only then have runners made. Where one cannot be, no other stays there."""
        self.begin_watch()
        try:
            self.runner_pool.refill(_FIRST)
        except BaseException:
            self.runner_pool.close()
            raise

    def _empty_runner(self) -> RunnerClient:
        """Start a runner with nothing of a submission in it."""
        if self._leaving:
            raise JudgeFailed("the grade ended before its runners were made")
        return RunnerClient(self._fork_server.spawn(RUNNER, limits=RUNNER_LIMITS, devices=self._gpu.nodes), None)
