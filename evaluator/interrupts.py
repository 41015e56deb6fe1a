"""Ctrl-C during code that would swallow it."""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block.

    An import of PyTorch swallows a KeyboardInterrupt at the wrong moment, and the grade would continue. An ignored
    SIGINT (nohup, a background job of a shell) stays ignored, also for processes started in the block.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()  # Python handles signals only there
    if not in_main_thread or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt
