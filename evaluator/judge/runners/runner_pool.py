"""Runners made ahead: their process stands and their device is up, and nothing of a submission is in them."""

import contextlib
from collections import deque
from collections.abc import Callable

from evaluator.judge.runners.runner_client import RunnerClient
from evaluator.records import DeviceKind

POOLED_RUNNERS = 2
"""One runner for the timing of a submission whose checks run, and one for the checks of the next."""
_WARM_S = 60.0


class RunnerPool:
    """A few runners that wait for a submission. A context on a GPU takes longer to make than most checks take.

    They get ready beside a submission's checks, and nothing is timed before they are (`settle`).
    """

    def __init__(self, spawn: Callable[[], RunnerClient], device: DeviceKind, count: int) -> None:
        """Keep `count` of what `spawn` makes, from the first `refill` on; with 0 each is made when it is asked for."""
        self._spawn = spawn
        self._device = device
        self._count = count
        self._ready: deque[RunnerClient] = deque()
        self._warming: deque[RunnerClient] = deque()

    def take(self) -> RunnerClient:
        """Give one; the caller ends it."""
        while self._ready or self._warming:
            if not self._ready:
                self._await_one()
            session = self._ready.popleft()
            if session.child.poll_exit() is None:
                return session
            session.__exit__()  # It ended while it waited, so there is nobody to blame but this machine.
        return self._spawn()

    def refill(self, at_least: int = 0) -> None:
        """Begin those that are missing, or `at_least` so many; they get ready by themselves."""
        while len(self._ready) + len(self._warming) < max(self._count, at_least):
            session = self._spawn()
            self._warming.append(session)
            session.warm(self._device)

    def settle(self) -> None:
        """Wait until all are ready. Raises JudgeFailed where one does not become so."""
        while self._warming:
            self._await_one()

    @property
    def processes(self) -> frozenset[int]:
        """Name the processes of those that are there."""
        return frozenset[int]().union(*(session.child.members() for session in (*self._ready, *self._warming)))

    def close(self) -> None:
        """End those that nobody took, side by side: of a GPU each takes a tenth of a second to let go."""
        with contextlib.ExitStack() as closing:
            for session in (*self._ready, *self._warming):
                session.child.condemn()
                closing.callback(session.__exit__)
        self._ready.clear()
        self._warming.clear()

    def _await_one(self) -> None:
        session = self._warming[0]
        session.warmed(_WARM_S)
        self._ready.append(self._warming.popleft())
