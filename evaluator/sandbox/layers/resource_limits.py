"""Resource limits of one runner or tool."""

import resource
from collections.abc import Iterator
from pathlib import Path

import msgspec

_GIB = 1 << 30


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Resource limits of one runner.

    `memory_bytes` bounds the address space of each process, beyond the mappings at the start of confinement: torch
    alone maps 0.6 GiB, and a CUDA build of torch many times as much. `held_bytes` bounds the memory of all processes
    together, mapped or not (see `memory_meter`); it is checked four times a second. `processes` counts threads too.
    `private_folder_bytes` bounds the private folder, /tmp and /dev/shm together. `work_bytes` bounds the host folder
    that a tool writes into, checked ten times a second. Of the output, the first and the last `kept_output_bytes` are
    kept.
    """

    memory_bytes: int = 16 * _GIB
    held_bytes: int = 16 * _GIB
    processes: int = 512
    file_bytes: int = 1 * _GIB
    open_files: int = 1024
    private_folder_bytes: int = 1 * _GIB
    work_bytes: int = 4 * _GIB
    kept_output_bytes: int = 16 << 10


def apply(limits: Limits, *, counted_alone: bool) -> None:
    """Apply `limits` to this process.

    `counted_alone` means that no other process runs under the same user in this user namespace.
    """
    other_tasks = 0 if counted_alone else _tasks_of_this_user()
    for kind, value in (
        (resource.RLIMIT_AS, _mapped_bytes() + limits.memory_bytes),
        (resource.RLIMIT_NPROC, limits.processes + other_tasks),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_NICE, 0),
        (resource.RLIMIT_RTPRIO, 0),
    ):
        _, hard = resource.getrlimit(kind)
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (allowed, allowed))


def _mapped_bytes() -> int:
    """Return the address space mapped by this process; 0 without /proc."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def _tasks_of_this_user() -> int:
    return sum(_threads_of_this_user())


def _threads_of_this_user() -> Iterator[int]:
    user = Path("/proc/self").stat().st_uid
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid == user:
                yield sum(1 for _ in (folder / "task").iterdir())
        except OSError:
            # The process ended during the scan.
            continue
