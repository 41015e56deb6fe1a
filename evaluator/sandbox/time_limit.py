"""Time limits that do not depend on neighbours: they count CPU time, with a generous wall limit behind.

Beside other jobs, a process takes longer and does not work more. The judge reads the CPU time from the machine's /proc,
which no confined process can write.
"""

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

PATIENCE = 6.0
"""The wall limit as a multiple of the limit of CPU time: for code that sleeps or waits, and for busy machines."""
_LOOK_S = 0.5
_LOOKS = 4
"""Looks before the limit at least, and so the part of a short limit that passes before the first look."""
_MOST_PROCESSES = 2000
"""More than a runner may have: processes that fork during a reading do not extend the reading without end."""
_PROC = Path("/proc")
_USER_TIME, _TIMES = 11, 4
"""Fields of /proc/PID/stat behind the name: utime, stime, cutime and cstime."""
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class CpuTime(NamedTuple):
    """CPU time of a process and its descendants, in seconds.

    `total_s` includes ended threads and children; a child whose parent ignores SIGCHLD only while the child lives.
    `threads_s` has the live threads, by thread id.
    """

    total_s: float
    threads_s: Mapping[int, float]

    def work_s(self, earlier: "CpuTime", cores: int) -> float:
        """Return the least wall time, in seconds, that the work since `earlier` takes on `cores` cores without others.

        It is the time of the busiest thread, or that of all threads divided by `cores`.
        """
        busiest = (each_s - earlier.threads_s.get(thread, 0.0) for thread, each_s in self.threads_s.items())
        return max((self.total_s - earlier.total_s) / cores, *busiest, 0.0)


def cpu_time_below(top: int) -> CpuTime:
    """Return the CPU time of all processes below the process `top`; 0.0 where /proc hides them."""
    total_s, threads_s = 0.0, {}
    for process in itertools.islice(_below(top), _MOST_PROCESSES):
        total_s += sum(_times_s(f"{process}/stat"))
        for thread in _listed(f"{process}/task"):
            threads_s[int(thread)] = sum(_times_s(f"{process}/task/{thread}/stat")[:2])
    return CpuTime(total_s, threads_s)


def _below(top: int) -> Iterator[int]:
    waiting = [top]
    while waiting:
        process = waiting.pop()
        for thread in _listed(f"{process}/task"):
            children = [int(child) for child in _read(f"{process}/task/{thread}/children").split()]
            waiting += children
            yield from children


def _times_s(path: str) -> list[float]:
    """Return user and system time, and both of ended children; [] for an ended process.

    The name of a process is its own choice, and may contain spaces and parentheses.
    """
    fields = _read(path).rpartition(")")[2].split()[_USER_TIME:][:_TIMES]
    return [int(ticks) * _TICK_S for ticks in fields]


def _read(path: str) -> str:
    try:
        return (_PROC / path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _listed(path: str) -> list[str]:
    try:
        return [entry.name for entry in (_PROC / path).iterdir()]
    except OSError:
        return []


class TimeLimit:
    """Limit of the time of one step of confined processes.

    With a CPU clock, the count begins with the first look, half a second after the start.
    """

    def __init__(self, limit_s: float, cpu_time: Callable[[], CpuTime] | None) -> None:
        """Begin now. `cpu_time` reads the clock of the processes; None to count wall time, as for work on a GPU."""
        self._limit_s = limit_s
        self._cpu_time = cpu_time
        self._wall_limit_s = limit_s if cpu_time is None else PATIENCE * limit_s
        self._wall_s = self._work_s = self._looked_s = 0.0
        self._look_s = min(_LOOK_S, limit_s / _LOOKS)
        self._first: CpuTime | None = None
        self._cores = len(os.sched_getaffinity(0))

    @property
    def left_s(self) -> float:
        """The wall time left."""
        return self._wall_limit_s - self._wall_s

    @property
    def wait_s(self) -> float:
        """The time to wait before the next question whether the limit is reached."""
        return self.left_s if self._cpu_time is None else min(self.left_s, self._looked_s + self._look_s - self._wall_s)

    def spend(self, wall_s: float) -> None:
        """Count wall time of the step."""
        self._wall_s += wall_s

    def reached(self) -> bool:
        """Return whether no time is left."""
        if self._cpu_time is not None and self._wall_s >= self._looked_s + self._look_s:
            self._looked_s = self._wall_s
            now = self._cpu_time()
            self._first = self._first or now
            self._work_s = max(self._work_s, now.work_s(self._first, self._cores))
        return self._work_s >= self._limit_s or self.left_s <= 0

    def __str__(self) -> str:
        """Say which limit was reached, after "took"."""
        if self._work_s >= self._limit_s:
            return f"more than {self._limit_s:g} s of CPU time"
        return f"longer than {self._wall_limit_s:g} s"
