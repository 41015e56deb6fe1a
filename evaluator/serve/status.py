"""Status of the ready judge, as printed by `warpgrade serve --status`."""

import contextlib

import psutil

from evaluator.batch.workers.messages import GradePart
from evaluator.records import DeviceKind, Record


class WorkerStatus(Record, frozen=True):
    """A worker process: part, problem, number of grades, and the memory of the whole process tree."""

    device: DeviceKind
    part: GradePart
    gpu: str | None
    pid: int
    busy: bool
    grades: int
    problem: str | None
    memory_bytes: int


class ServerStatus(Record, frozen=True):
    """Status of the server. `grades` counts finished grades since the start."""

    pid: int
    version: str
    socket: str
    started_at: str
    idle_minutes: float
    devices: list[DeviceKind]
    grades: int
    running: int
    ending: bool
    memory_bytes: int
    workers: list[WorkerStatus]


def tree_bytes(pid: int) -> int:
    """Return the memory of a process and its descendants; shared memory counts once where known."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return sum(map(_bytes, [process, *process.children(recursive=True)]))
    return 0


def _bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (psutil.Error, AttributeError):  # a confined process hides the counts of pages
        with contextlib.suppress(psutil.Error):
            return int(process.memory_info().rss)
    return 0
