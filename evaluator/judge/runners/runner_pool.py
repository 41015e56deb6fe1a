"""Processes started in advance: warm runners, and confined children that analyse one text. None has read anything."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable

from evaluator.errors import JudgeFailed
from evaluator.judge.runners.runner_client import RunnerClient
from evaluator.protocol.frames import Closed
from evaluator.records import DeviceKind
from evaluator.sandbox import Child, ForkServer, Limits

POOLED_RUNNERS = 1
"""A runner for the next submission."""
GPU_RUNNERS = 4
"""On a GPU, also the two runners of the next problem's reference, and one for the submission after a problem's first:
contexts of other runners are still being made then."""
_AT_ONCE = 2
"""Contexts made after a grade: the driver needs 0.2 s for each, in turn."""
_WARM_S = 60.0


class RunnerPool:
    """A few idle runners. Creating a GPU context takes longer than most checks.

    Processes start beside a submission's checks, and warm up after the last timed call of a grade: `settle` waits for
    all warm-ups. Beside the creation of contexts, a fifth of the windows took two to six times as long in five of 45
    grades (H200).
    """

    def __init__(self, spawn: Callable[[], RunnerClient], device: DeviceKind, count: int) -> None:
        """Keep `count` runners from `spawn` after the first `refill`; with 0, start each runner on request."""
        self._spawn = spawn
        self._device = device
        self._count = count
        self._ready: deque[RunnerClient] = deque()
        self._warming: deque[RunnerClient] = deque()
        self._started: deque[RunnerClient] = deque()
        self._filled = threading.Event()
        self._filled.set()
        self._failure: BaseException | None = None

    def take(self) -> RunnerClient:
        """Return a live runner; the caller ends the process. Of started runners, one warms up."""
        self._filled.wait()
        while self._idle:
            if not self._ready and not self._warming:
                self._warm_one()
            if not self._ready and self._warming:
                self._await_one()
            if self._ready:
                session = self._ready.popleft()
                if session.child.poll_exit() is None:
                    return session
                session.__exit__()  # Without submission code, the death of an idle runner is the machine's fault.
        return self._spawn()

    def refill(self, at_least: int = 0, before_warming: Callable[[], object] | None = None) -> None:
        """Start runners until the pool has its size, or `at_least` runners if more; warm them up without waiting.

        All processes start first, then comes a call of `before_warming`, then the warm-ups.
        """
        self._fill(max(self._count, at_least))
        if before_warming is not None:
            before_warming()
        self.warm()

    def begin_refill(self) -> None:
        """Start a few of the missing runners in a thread, without warm-ups."""
        self._end_filling()
        count = min(self._count, len(self._idle) + _AT_ONCE)
        filled = self._filled = threading.Event()

        def fill() -> None:
            try:
                while len(self._idle) < count:
                    self._started.append(self._spawn())
            except BaseException as error:  # noqa: BLE001 - raised again by `_end_filling`
                self._failure = error
            finally:
                filled.set()

        threading.Thread(target=fill, name="runners", daemon=True).start()

    def warm(self) -> None:
        """Begin the warm-ups of all started runners, without waiting. Raises an error of `begin_refill`."""
        self._end_filling()
        while self._started:
            self._warm_one()

    def settle(self) -> None:
        """Wait for starting processes and for all warm-ups. Raises JudgeFailed if a warm-up fails twice."""
        self._filled.wait()
        while self._warming:
            self._await_one()

    @property
    def processes(self) -> frozenset[int]:
        """Process ids of all pooled runners."""
        return frozenset[int]().union(*(child.members() for child in self.children))

    @property
    def children(self) -> list[Child]:
        """All pooled runners' processes."""
        self._filled.wait()
        return [session.child for session in self._idle]

    def condemn(self) -> None:
        """Begin to end all idle runners, without waiting: see `close`."""
        for child in self.children:
            child.condemn()

    def close(self) -> None:
        """End all idle runners in parallel: releasing a GPU context takes a tenth of a second."""
        self._filled.wait()
        self._failure = None
        with contextlib.ExitStack() as closing:
            for sessions in (self._started, self._warming, self._ready):
                closing.callback(sessions.clear)
            for session in self._idle:
                closing.callback(session.__exit__)
            self.condemn()

    @property
    def _idle(self) -> list[RunnerClient]:
        return [*self._ready, *self._warming, *self._started]

    def _fill(self, count: int) -> None:
        self._end_filling()
        while len(self._idle) < count:
            self._started.append(self._spawn())

    def _end_filling(self) -> None:
        """Wait for the thread of `begin_refill`. Raises the thread's error."""
        self._filled.wait()  # An interrupted `Thread.join` does not wait again.
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _warm_one(self) -> None:
        """Begin the warm-up of a started runner. A dead runner is dropped."""
        session = self._started.popleft()
        try:
            session.warm(self._device)
        except Closed:  # For example the machine's memory was short.
            session.__exit__()
        else:
            self._warming.append(session)

    def _await_one(self) -> None:
        """Wait for a warm-up. A runner that fails is replaced once: a submission may have taken the GPU's memory."""
        try:
            self._warming[0].warmed(_WARM_S)
        except JudgeFailed:
            self._warming.popleft().__exit__()
            self._warming.appendleft(self._spawn())
            self._warming[0].warm(self._device)
            self._warming[0].warmed(_WARM_S)
        self._ready.append(self._warming.popleft())


class SpareChildren:
    """Confined children of a fork server, with a spare of each kind that earlier grades used.

    A child analyses one text and ends. Its start takes longer than the analysis, so `refill` starts the spares between
    two grades. A spare holds no data: a fork of the same starter, with the same limits, as a child started on request.
    """

    def __init__(self, fork_server: ForkServer) -> None:
        """Start children of `fork_server`; no spare before `refill`."""
        self._fork_server = fork_server
        self._spares: dict[tuple[str, Limits], Child] = {}
        self._used: set[tuple[str, Limits]] = set()
        self._changing = threading.Lock()

    def spawn(self, entry: str, limits: Limits) -> Child:
        """Return a live child with these limits that calls `entry`; the caller ends the child. Thread-safe."""
        with self._changing:
            self._used.add((entry, limits))
            spare = self._spares.pop((entry, limits), None)
        if spare is not None:
            with contextlib.suppress(JudgeFailed):  # Something on the machine has killed the spare's init process.
                if spare.poll_exit() is None:
                    return spare
            spare.kill()
        return self._fork_server.spawn(entry, limits)

    def refill(self) -> None:
        """Start a spare of each kind that was ever asked for; no grade may run meanwhile. Raises JudgeFailed."""
        with self._changing:  # A thread of an ended grade may still ask for a child.
            for kind in self._used - self._spares.keys():
                self._spares[kind] = self._fork_server.spawn(*kind)

    def close(self) -> None:
        """End all spares."""
        with self._changing:  # as in `refill`
            spares, self._spares = self._spares, {}
        with contextlib.ExitStack() as closing:
            for spare in spares.values():
                closing.callback(spare.kill)
                spare.condemn()
