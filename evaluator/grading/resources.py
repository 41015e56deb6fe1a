"""Process resources of a grade: cores and garbage collector."""

import contextlib
import gc
import os
import sys
from collections.abc import Iterator


def threads() -> int:
    """Return the number of cores available to this process."""
    return len(os.sched_getaffinity(0))


@contextlib.contextmanager
def nothing_collected() -> Iterator[None]:
    """Disable the garbage collector during the import of torch: repeated scans of permanent objects cost time."""
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
