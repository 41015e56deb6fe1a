"""Process resources of a grade: cores, garbage collector and freed memory."""

import contextlib
import gc
import os
import sys
from collections.abc import Iterator

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 256 << 20
_MAPPED_FROM_BYTES = 32 << 20
"""The largest value that the C library allows."""


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


def keep_freed_memory() -> None:
    """Let this process, a judge, keep up to 256 MiB of freed memory for its next tensors.

    By default, the C library returns the memory of each temporary tensor to the system. The next one then waits for
    fresh pages: a fifth of the CPU time of comparisons. Processes of submissions are never set so, because both sides
    of a timing must run as they would elsewhere.
    """
    import ctypes

    with contextlib.suppress(AttributeError):  # a C library without mallopt
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
