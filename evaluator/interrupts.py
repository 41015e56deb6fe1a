"""Ctrl-C, where it would get lost."""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Let Ctrl-C wait until the end of the block.

    An import of PyTorch swallows a KeyboardInterrupt that meets it at the wrong moment, and the grade would go on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Signals are handled in the main thread alone.
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt
