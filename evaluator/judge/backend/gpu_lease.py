"""A grade's hold on its GPU: for good when the submission is built, and before that as long as nobody else wants it."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from evaluator.devices.gpu import Gpu, is_awaited, leased
from evaluator.errors import InfraError

_WAIT_S = 600.0
_LOOK_ROUND_S = 0.5


class GpuLease:
    """The lease of one GPU among all grades of this machine."""

    def __init__(self, gpu: Gpu, bring_up: Callable[[], None]) -> None:
        """Hold nothing yet. `bring_up` is called each time that the GPU has come to be ours."""
        self._gpu = gpu
        self._bring_up = bring_up
        self._lease = contextlib.ExitStack()
        self._held = False
        self._hand = threading.Lock()
        self._for_good = threading.Event()
        # Not the thread's own end: whoever is interrupted in `Thread.join` can never wait for that thread again.
        self._rests = threading.Event()
        self._rests.set()

    def reach(self, first: Callable[[], None]) -> None:
        """Take the GPU if nobody else has it or wants it; in a thread, do `first` and bring it up.

        It is given back if somebody comes to wait for it before it is `settle`d. What was brought up stays and rests.
        """
        if self._held or is_awaited(self._gpu):
            return
        with contextlib.suppress(InfraError, RuntimeError):  # `settle` waits for it, or says what is wrong.
            self._take(wait_s=0.0)
            self._for_good.clear()
            self._rests.clear()
            try:
                threading.Thread(target=self._until_it_is_wanted, args=(first,), daemon=True).start()
            except BaseException:  # There may be no room for another thread.
                self._rests.set()
                self._give_back()
                raise

    @contextlib.contextmanager
    def kept(self) -> Iterator[bool]:
        """Say whether the GPU is held. While this lasts it is given to nobody; whoever waits for it waits longer."""
        with self._hand:
            yield self._held

    def settle(self) -> None:
        """Have the GPU, brought up, until `close`; wait for it where another grade has it.

        Raises InfraError if that takes long, and what bringing it up raises.
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
        """Wait for what is being brought up, and give the GPU to nobody who waits for it from now on."""
        with self._hand:
            self._for_good.set()
        self._rests.wait()

    def close(self) -> None:
        """Give it back. What was brought up is gone by now."""
        self.rest()
        self._give_back()

    def _take(self, wait_s: float) -> None:
        with contextlib.ExitStack() as lease:
            lease.enter_context(leased(self._gpu, wait_s))
            self._lease, self._held = lease.pop_all(), True

    def _give_back(self) -> None:
        self._held = False
        self._lease.close()

    def _until_it_is_wanted(self, first: Callable[[], None]) -> None:
        try:
            first()
            self._bring_up()
            self._look_who_waits()
        except BaseException:  # noqa: BLE001 - `settle` tries again, and there it counts
            with self._hand:
                self._give_back()
        finally:
            self._rests.set()

    def _look_who_waits(self) -> None:
        while not self._for_good.wait(_LOOK_ROUND_S):
            if is_awaited(self._gpu):
                with self._hand:
                    if not self._for_good.is_set():
                        self._give_back()
                return
