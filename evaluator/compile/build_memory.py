"""Memory for one build: a share of the machine, by the number of builds at once.

Compilers of one submission run at once, and each process may take memory up to a limit of its own. Without a limit on
their sum, a submission of a few units takes all memory of the machine.
"""

import contextlib
import functools
import os
from pathlib import Path

_GIB = 1 << 30
_MOST_BYTES = 64 * _GIB
_LEAST_BYTES = 6 * _GIB
"""Enough for two units of nvcc, of 3 GiB each."""
_COMPILER_BYTES = 3 * _GIB
_CGROUP_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_shares = 1


def share_machine(builds_at_once: int) -> None:
    """Divide the machine between so many builds. A worker calls this once, at its start."""
    global _shares  # noqa: PLW0603 - like the affinity, of the whole process
    _shares = max(1, builds_at_once)


def held_bytes() -> int:
    """Return the limit for the memory of all compilers of one build, in bytes."""
    return bytes_of_share(_machine_bytes(), _shares)


def compilers_at_once() -> int:
    """Return the number of compilers that one build starts at once: one for each core, as far as memory allows."""
    return max(1, min(len(os.sched_getaffinity(0)), held_bytes() // _COMPILER_BYTES))


def bytes_of_share(machine_bytes: int, shares: int) -> int:
    """Return one of so many shares of three quarters of the machine, from 6 to 64 GiB.

    >>> [bytes_of_share(24 << 30, shares) >> 30 for shares in (1, 2, 16)], bytes_of_share(4 << 30, 1) >> 30
    ([18, 9, 6], 3)
    """
    for_builds = machine_bytes * 3 // 4
    return min(_MOST_BYTES, for_builds, max(_LEAST_BYTES, for_builds // shares))


@functools.cache
def _machine_bytes() -> int:
    """Return the memory of the machine, or of the container if smaller."""
    import psutil

    limits = [psutil.virtual_memory().total]
    for file in _CGROUP_FILES:
        with contextlib.suppress(OSError, ValueError):  # "max": unlimited
            limits.append(int(Path(file).read_text(encoding="ascii")))
    return min(limits)
