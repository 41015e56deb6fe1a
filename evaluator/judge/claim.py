"""A grade's hold on its GPU: for good when the submission is built, and before that as long as nobody else wants it."""

import contextlib
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from evaluator.devices.gpu import Gpu, is_awaited, leased
from evaluator.errors import InfraError

_WAIT_S = 600.0
_LOOK_ROUND_S = 0.5

T = TypeVar("T")


class Claim(Generic[T]):
    """The lease of one GPU among all grades of this machine, and what was got ready on it ahead of time."""

    def __init__(self, gpu: Gpu, bring_up: Callable[[], None], clear: Callable[[], None]) -> None:
        """Hold nothing yet.

        `bring_up` is called each time that the GPU has come to be ours, `clear` where what was got ready is dropped.
        """
        self._gpu = gpu
        self._bring_up = bring_up
        self._clear = clear
        self._lease = contextlib.ExitStack()
        self._held = False
        self._hand = threading.Lock()
        self._for_good = threading.Event()
        self._left = False
        # Not threads are waited for: after a Ctrl-C in a thread's `join` Python says that it has ended.
        self._idle = threading.Event()
        self._idle.set()
        self._tried = False
        self._ready: T | None = None

    def reach(self, get_ready: Callable[[], T]) -> None:
        """Take the GPU if nobody else has it or wants it, and get ready in a thread.

        It is given back if somebody comes to wait for it before it is `settle`d: then what was got ready is dropped;
        what was brought up stays and rests.
        """
        if self._held or is_awaited(self._gpu):
            return
        with contextlib.suppress(InfraError):  # `settle` waits for it, or says what is wrong.
            self._take(wait_s=0.0)
            self._for_good.clear()
            self._idle.clear()
            try:
                threading.Thread(target=self._until_it_is_wanted, args=(get_ready,), daemon=True).start()
            except BaseException:
                self._idle.set()
                raise

    def settle(self) -> T | None:
        """Have the GPU until `close`, and what was got ready on it; None where that is still to be done.

        Waits where another grade has it. Raises InfraError if that takes long.
        """
        with self._hand:
            self._for_good.set()
        self._idle.wait()
        if not self._held:
            self._take(_WAIT_S)
        ready, self._ready, self._tried = self._ready, None, False
        return ready

    def close(self, *, wait: bool = True) -> None:
        """Give it back. What was brought up is gone by now.

        Where something is still being got ready, the thread gives it back when it is. That is waited for, unless
        `wait` says that somebody wants to leave: the problem's own code may have turned stdout elsewhere meanwhile.
        """
        with self._hand:
            self._for_good.set()
            self._left = True
        if wait:
            self._idle.wait()
        with self._hand:
            if self._idle.is_set():
                self._give_back()

    def _take(self, wait_s: float) -> None:
        with contextlib.ExitStack() as lease:
            lease.enter_context(leased(self._gpu, wait_s))
            self._bring_up()
            self._lease, self._held = lease.pop_all(), True

    def _give_back(self) -> None:
        self._held = False
        with self._lease:
            if self._tried:
                self._tried, self._ready = False, None
                with contextlib.suppress(Exception):  # A GPU that is broken has nothing to give.
                    self._clear()

    def _until_it_is_wanted(self, get_ready: Callable[[], T]) -> None:
        self._tried = True
        with contextlib.suppress(BaseException):  # What fails here fails again where it counts.
            self._ready = get_ready()
        with self._hand:
            self._idle.set()
            if self._left:
                self._give_back()
        while not self._for_good.wait(_LOOK_ROUND_S):
            if is_awaited(self._gpu):
                with self._hand:
                    if not self._for_good.is_set():
                        self._give_back()
                return
