"""What all processes of a runner hold in memory together, wherever that lies.

A limit of address space is one process's, and sees nothing that is not mapped. So the supervisor adds up: memory that
is mapped, private or shared; tables of pages; what sockets may hold at most; and, where memfds are to be had, those.
It reads the machine's /proc from outside of the runner's walls, four times a second, 0.1 ms each.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_STATUS_BYTES = 8 << 10
_KIB = 1 << 10
_BUFFERS_BYTES_AT_MOST = 1 << 20
_DEFAULT_BUFFER_BYTES = 212_992
_MEMFD = "/memfd:"


class _Share(NamedTuple):
    """What one process has: bytes of its own, bytes in shared memory, and what else it may hold."""

    own_bytes: int
    shared_bytes: int
    other_bytes: int


class Meter:
    """Reads one /proc: the machine's, for its descriptor is opened before the walls stand. No child may keep that."""

    def __init__(self, proc: str = "/proc") -> None:
        """Open `proc`. Raises OSError where there is none."""
        self.descriptor = os.open(proc, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._buffer_bytes = _largest_buffer_bytes(proc)

    def exceeds(self, top: int, limit_bytes: int, *, memfds: bool) -> bool:
        """Say whether the processes below `top` hold more than `limit_bytes`; `memfds` where they can make some.

        Pages that several processes share are counted in each first, which is quick. Only where that is too much, each
        is counted once.
        """
        pids = list(self._below(top))
        files_bytes = self._memfd_bytes(pids) if memfds else 0
        return all(
            _sum(map(share_of, pids), files_bytes) > limit_bytes for share_of in (self._quick_share, self._exact_share)
        )

    def _below(self, top: int) -> Iterator[int]:
        """Number the processes below `top`."""
        waiting = [top]
        while waiting:
            pid = waiting.pop()
            with contextlib.suppress(OSError), self._opened(f"{pid}/task") as tasks, os.scandir(tasks) as entries:
                for task in entries:
                    for child in self._read(f"{pid}/task/{task.name}/children").split():
                        waiting.append(int(child))
                        yield int(child)

    def _quick_share(self, pid: int) -> _Share:
        sizes = _sizes(self._read(f"{pid}/status"))
        return _Share(
            own_bytes=sizes.get("RssAnon", 0) * _KIB,
            shared_bytes=sizes.get("RssShmem", 0) * _KIB,
            other_bytes=(sizes.get("VmPTE", 0) + sizes.get("VmSwap", 0)) * _KIB
            + sizes.get("FDSize", 0) * self._buffer_bytes,
        )

    def _exact_share(self, pid: int) -> _Share:
        quick = self._quick_share(pid)
        sizes = _sizes(self._read(f"{pid}/smaps_rollup"))
        if "Pss_Anon" not in sizes:  # Not ours to read, or gone.
            return quick
        return quick._replace(own_bytes=sizes["Pss_Anon"] * _KIB, shared_bytes=sizes.get("Pss_Shmem", 0) * _KIB)

    def _memfd_bytes(self, pids: Iterable[int]) -> int:
        """Add up files in memory that have no name, each once; where another user's may not be listed, nothing."""
        found: dict[tuple[int, int], int] = {}
        for pid in pids:
            with contextlib.suppress(OSError), self._opened(f"{pid}/fd") as folder, os.scandir(folder) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        if os.readlink(entry.name, dir_fd=folder).startswith(_MEMFD):
                            facts = os.stat(entry.name, dir_fd=folder)
                            found[facts.st_dev, facts.st_ino] = facts.st_blocks * 512
        return sum(found.values())

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.descriptor)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _read(self, path: str) -> str:
        """Read a small file of a process; nothing where that has ended, or may not be read."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.descriptor)
        except OSError:
            return ""
        try:
            return os.read(descriptor, _STATUS_BYTES).decode(errors="replace")
        except OSError:
            return ""
        finally:
            os.close(descriptor)


def _sum(shares: Iterable[_Share], files_bytes: int) -> int:
    """Add up. A memfd that is mapped is among the shared bytes already, so the larger of the two counts."""
    own, shared, other = map(sum, zip(_Share(0, 0, 0), *shares, strict=True))
    return own + max(shared, files_bytes) + other


def _sizes(text: str) -> dict[str, int]:
    """Read the lines `Name: number` of a file of /proc."""
    pairs = (line.partition(":") for line in text.splitlines())
    words = ((name, rest.split()) for name, _, rest in pairs)
    return {name: int(found[0]) for name, found in words if found and found[0].isdigit()}


def _largest_buffer_bytes(proc: str) -> int:
    """Say what one socket's queue takes at most: twice what is sent, for the kernel counts its own records too."""
    try:
        size_bytes = int(Path(proc, "sys/net/core/wmem_default").read_text(encoding="ascii"))
    except (OSError, ValueError):
        size_bytes = _DEFAULT_BUFFER_BYTES
    return min(2 * size_bytes, _BUFFERS_BYTES_AT_MOST)
