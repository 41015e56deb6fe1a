"""Lease of a GPU: exclusive after the submission's build, before that released as soon as another grade waits."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from evaluator.devices.gpu import Gpu, is_awaited, leased
from evaluator.errors import InfraError

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
