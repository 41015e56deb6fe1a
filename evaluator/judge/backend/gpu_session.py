"""GPU session of a grade: the lease, the judge's context, a pool of runners with contexts, and the GPU monitor.

A session needs no PyTorch, so a single grade has its session ready when the import of PyTorch ends.
"""

import contextlib
import os
import threading
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
"""CUDA reserves addresses for all memory of every GPU: a tighter limit of address space is impossible."""
_FIRST = 3
"""Runners of the first grade: one of the submission, two of the reference."""


class GpuSession:
    """GPU session of a judge. A context manager: the exit ends all pooled runners, then releases the GPU."""

    def __init__(self, gpu: Gpu, fork_server: ForkServer, *, runner_pool: int = 0, lasting: bool = False) -> None:
        """Create the session without lease and runners.

        Runners come from `fork_server`. The pool replaces taken runners up to `runner_pool`. A `lasting` session serves
        several problems in turn (`renew`), and its owner closes it.
        """
        self.lasting = lasting
        os.environ.update(show_only(gpu.uuid))
        self._gpu = gpu
        self._fork_server = fork_server
        self._own: frozenset[int] = frozenset()
        self._leaving = False
        self._gpu_lease = GpuLease(gpu, self._bring_up)
        self.runner_pool = RunnerPool(self._empty_runner, DeviceKind.CUDA, runner_pool)
        self._monitor: GpuMonitor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def reach(self) -> None:
        """Start to create GPU contexts in a thread, unless another grade has or awaits the GPU."""
        self._gpu_lease.reach(self._make_context)

    @property
    def monitor(self) -> GpuMonitor:
        """Monitor of the GPU during the grade. Raises RuntimeError before `settle`."""
        if self._monitor is None:
            raise RuntimeError("the GPU is not at hand: see settle")
        return self._monitor

    @property
    def is_in_the_way(self) -> bool:
        """Whether the session holds a GPU for which another grade waits."""
        return self._gpu_lease.is_in_the_way

    @contextlib.contextmanager
    def kept(self) -> Iterator[bool]:
        """Yield whether the judge can use the GPU now. The GPU cannot be released inside the context.

        The pool may not be complete yet.
        """
        with self._gpu_lease.kept() as held:
            yield held and self._monitor is not None

    def settle(self) -> None:
        """Hold the GPU with contexts until `close`. Wait for the lease of another grade."""
        self._gpu_lease.settle()

    def renew(self) -> None:
        """Begin with another problem: a new monitor, and as many runners as for the first.

        No process of the last problem stays. Idle runners have read nothing, and do.
        """
        self._own = frozenset()
        if self._gpu_lease.is_held:
            self._bring_up()

    def close(self) -> None:
        """End the pooled runners and release the GPU. Idempotent."""
        self._leaving = True
        with contextlib.ExitStack() as leaving:
            leaving.callback(self._gpu_lease.close)
            leaving.callback(self.runner_pool.close)
            leaving.callback(self._gpu_lease.rest)

    def start_monitor(self) -> None:
        """Start the monitor, before the grade runs anything on the GPU."""
        self._monitor = GpuMonitor(self._gpu, self._own_processes)

    def add_own(self, processes: frozenset[int]) -> None:
        """Add processes that stay on the GPU between submissions to the judge's own."""
        self._own |= processes

    def _own_processes(self) -> frozenset[int]:
        return self._own | self.runner_pool.processes

    def _make_context(self) -> None:
        """Create the judge's own context, which needs no fork server. A failure is raised again at the first use."""
        with contextlib.suppress(driver.DriverError, OSError):
            driver.make_context()

    def _bring_up(self) -> None:
        """Start the monitor first, then the runners. If one runner cannot start, end the pool.

        The problem's setup needs the judge's context alone. The judge's context therefore comes first, beside the start
        of the runners' processes.
        """
        self.start_monitor()
        context_ready = threading.Event()  # As in `GpuLease`: an interrupted `Thread.join` does not wait again.

        def make_context() -> None:
            try:
                self._make_context()
            finally:
                context_ready.set()

        threading.Thread(target=make_context, name="context", daemon=True).start()
        try:
            self.runner_pool.refill(_FIRST, context_ready.wait)
        except BaseException:
            self.runner_pool.close()
            context_ready.wait()  # The caller releases the GPU: no context may come into being afterwards.
            raise

    def _empty_runner(self) -> RunnerClient:
        """Start a runner without submission."""
        if self._leaving:
            raise JudgeFailed("the grade ended before its runners were made")
        return RunnerClient(self._fork_server.spawn(RUNNER, limits=RUNNER_LIMITS, devices=self._gpu.nodes), None)
