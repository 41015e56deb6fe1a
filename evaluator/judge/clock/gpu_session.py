"""GPU session of a grade: the lease, the judge's context, a pool of runners with contexts, and the GPU monitor.

The lease is exclusive after the submission's build, and before that released as soon as another grade waits. A session
needs no PyTorch, so a single grade has its session ready when the import of PyTorch ends.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from evaluator.devices import driver
from evaluator.devices.gpu import Gpu, is_awaited, leased, show_only
from evaluator.errors import InfraError, JudgeFailed
from evaluator.judge.clock.gpu_monitor import GpuMonitor
from evaluator.judge.runners.runner_client import RUNNER, RunnerClient
from evaluator.judge.runners.runner_pool import RunnerPool
from evaluator.records import DeviceKind
from evaluator.sandbox import ForkServer, Limits

_WAIT_S = 600.0
_LOOK_ROUND_S = 0.5


class GpuLease:
    """Lease of one GPU among all grades of the machine."""

    def __init__(self, gpu: Gpu, bring_up: Callable[[], None]) -> None:
        """Create the lease, not yet held. `bring_up` is called after each acquisition."""
        self._gpu = gpu
        self._bring_up = bring_up
        self._lease = contextlib.ExitStack()
        self._held = False
        self._hand = threading.Lock()
        self._for_good = threading.Event()
        # An event instead of `Thread.join`: after an interrupted join, the thread can never be joined again.
        self._rests = threading.Event()
        self._rests.set()

    def reach(self, first: Callable[[], None]) -> None:
        """Take the GPU if free and not awaited. A thread then calls `first` and `bring_up`.

        The thread releases the GPU if another grade starts to wait before `settle`. Contexts and runners stay, idle.
        """
        if self._held or is_awaited(self._gpu):
            return
        with contextlib.suppress(InfraError, RuntimeError):  # `settle` waits for the GPU, or raises the error.
            self._take(wait_s=0.0)
            self._for_good.clear()
            self._rests.clear()
            try:
                threading.Thread(target=self._hold_until_awaited, args=(first,), daemon=True).start()
            except BaseException:  # the system may be out of threads
                self._rests.set()
                self._give_back()
                raise

    @property
    def is_held(self) -> bool:
        """Whether the GPU is held."""
        return self._held

    @property
    def is_in_the_way(self) -> bool:
        """Whether the GPU is held while another grade waits for it."""
        return self._held and is_awaited(self._gpu)

    @contextlib.contextmanager
    def kept(self) -> Iterator[bool]:
        """Yield whether the GPU is held. The lease cannot be released inside the context."""
        with self._hand:
            yield self._held

    def settle(self) -> None:
        """Hold the GPU, brought up, until `close`. Wait for the lease of another grade.

        Raises InfraError after a long wait, and any error of `bring_up`.
        """
        self.rest()
        if not self._held:
            self._take(_WAIT_S)
            try:
                self._bring_up()
            except BaseException:
                self._give_back()
                raise

    def rest(self) -> None:
        """Wait for `bring_up`, and stop releasing the GPU to waiting grades."""
        with self._hand:
            self._for_good.set()
        # In rounds: Python handles a signal that comes just before a wait only after the wait.
        while not self._rests.wait(_LOOK_ROUND_S):
            pass

    def close(self) -> None:
        """Release the GPU. The caller must have ended all contexts and runners."""
        self.rest()
        self._give_back()

    def _take(self, wait_s: float) -> None:
        with contextlib.ExitStack() as lease:
            lease.enter_context(leased(self._gpu, wait_s))
            self._lease, self._held = lease.pop_all(), True

    def _give_back(self) -> None:
        self._held = False
        self._lease.close()

    def _hold_until_awaited(self, first: Callable[[], None]) -> None:
        try:
            first()
            self._bring_up()
            self._watch_for_waiters()
        except BaseException:  # noqa: BLE001 - `settle` tries again, and there it counts
            with self._hand:
                self._give_back()
        finally:
            self._rests.set()

    def _watch_for_waiters(self) -> None:
        while not self._for_good.wait(_LOOK_ROUND_S):
            if is_awaited(self._gpu):
                with self._hand:
                    if not self._for_good.is_set():
                        self._give_back()
                return


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
