"""How a grade uses the process that it runs in: its cores, and its garbage collector."""

import contextlib
import gc
import os
import sys
from collections.abc import Iterator


def threads() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


@contextlib.contextmanager
def nothing_collected() -> Iterator[None]:
    """Import torch: what is imported stays, and looking through it for garbage again and again takes its time."""
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
