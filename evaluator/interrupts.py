"""Signals during code that must not be interrupted."""

import contextlib
import fcntl
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def held_back(*numbers: signal.Signals) -> Iterator[None]:
    """Delay the signals `numbers` until the end of the block, then call their handlers.

    An import of PyTorch swallows a KeyboardInterrupt at the wrong moment, and the grade would continue. An ignored
    signal (SIGINT under nohup, or in a background job of a shell) stays ignored, also for processes started in the
    block. A signal mask would not do: another thread would take the signal, and the handler still runs in this one.
    """
    if threading.current_thread() is not threading.main_thread():  # Python handles signals only there
        yield
        return
    came: list[int] = []
    with contextlib.ExitStack() as after:  # Also after an exception, and each signal although a handler raises.
        after.callback(_raise_each, came)
        for number in numbers:
            before = signal.getsignal(number)
            if before not in (None, signal.SIG_IGN):
                after.callback(signal.signal, number, before)
                signal.signal(number, lambda taken, _: came.append(taken))
        yield


def _raise_each(numbers: list[int]) -> None:
    with contextlib.ExitStack() as raising:
        for number in reversed(numbers):
            raising.callback(signal.raise_signal, number)


@contextlib.contextmanager
def blocked(*numbers: signal.Signals) -> Iterator[None]:
    """Block signals in this thread. A process forked in the block starts so, and unblocks the signals by itself.

    A new process has the handlers of its parent at first. An earlier signal would run the parent's code there.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def on_hang_up(descriptor: int, act: Callable[[], object]) -> Iterator[None]:
    """Call `act` in the main thread during the block, as soon as the other end of a pipe or socket is closed.

    For long imports, between which a process asks for nothing. `PR_SET_PDEATHSIG` would not do: it tells of the end of
    the thread that started the process. Only the main thread may call this.
    """

    def look(*_: object) -> None:
        if has_hung_up(descriptor):
            act()

    before = signal.signal(signal.SIGIO, look)
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)
    try:
        look()
        yield
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
        signal.signal(signal.SIGIO, before)


def has_hung_up(descriptor: int) -> bool:
    """Return whether the other end of a pipe or socket is closed."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return bool(poll.poll(0))
