"""What one runner or tool may use of the machine."""

import resource
from collections.abc import Iterator
from pathlib import Path

import msgspec

_GIB = 1 << 30


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The most that one runner may take.

    `memory_bytes` is address space, for each process, beyond what is mapped when the walls go up: torch alone maps
    0.6 GiB, and a build of it with CUDA many times that. `held_bytes` is for what all its processes hold in memory
    together, wherever that lies (see `meter`); it is looked at four times a second.
    `processes` counts threads too. `private_folder_bytes` is for the private folder, /tmp and /dev/shm together;
    `work_bytes` for the folder of the host's that a tool writes into, looked at ten times a second.
    Of what is printed, the first and the last `kept_output_bytes` are kept.
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
    """Put `limits` on this process. `counted_alone`: nobody else runs under the same user in this user namespace."""
    others = 0 if counted_alone else _tasks_of_this_user()
    for kind, value in (
        (resource.RLIMIT_AS, _mapped_bytes() + limits.memory_bytes),
        (resource.RLIMIT_NPROC, limits.processes + others),
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
    """Say how much address space this process has now; 0 where there is no /proc to ask."""
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
            # It ended while we looked.
            continue
