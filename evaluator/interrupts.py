"""Signals during code that must not be interrupted."""

import contextlib
import signal
import threading
from collections.abc import Iterator


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
    try:
        with contextlib.ExitStack() as restoring:
            for number in numbers:
                before = signal.getsignal(number)
                if before not in (None, signal.SIG_IGN):
                    restoring.callback(signal.signal, number, before)
                    signal.signal(number, lambda taken, _: came.append(taken))
            yield
    finally:  # also after an exception of the block, which may be caught
        for taken in came:
            signal.raise_signal(taken)
