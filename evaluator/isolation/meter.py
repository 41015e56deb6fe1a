"""What all processes of a runner hold in memory together, wherever that lies.

A limit of address space is one process's, and sees nothing that is not mapped. So the supervisor adds up: memory that
is mapped, private or shared; tables of pages; what sockets may hold at most; and, where memfds are to be had, those.
It reads the machine's /proc from outside of the runner's walls, four times a second, 0.1 ms each.

Shared memory stays when no process has its pages in a table (MADV_DONTNEED, a child that wrote it and ended), and
most of it may be mapped nowhere: the kernel is asked what the file behind it holds. And a process may go on when its
first thread has ended, of which /proc then says nothing: another thread is asked.
"""

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_STATUS_BYTES = 8 << 10
_KIB = 1 << 10
_BUFFERS_BYTES_AT_MOST = 1 << 20
_DEFAULT_BUFFER_BYTES = 212_992
_MEMFD = "/memfd:"
_ENDED = "FDSize:\t0\n"
"""In the status of a thread that has ended."""
_LOOKS_AT_THREADS = 4
_SHARED_ANONYMOUS = " /dev/zero (deleted)"
_MAPS_BYTES_AT_MOST = 8 << 20
"""Of a list of mapped areas; a longer one (100 000 areas: the kernel allows 65 530) is read so far."""


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
        # No runner has more shared memory than the machine.
        most_bytes = _sizes(self._read("meminfo")).get("Shmem", 0) * _KIB
        if _sum(map(self._quick_share, pids), max(files_bytes, most_bytes)) <= limit_bytes:
            return False
        hidden_bytes = self._shared_anonymous_bytes(pids)
        return _sum(map(self._exact_share, pids), files_bytes + hidden_bytes) > limit_bytes

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
        sizes = _sizes(self._read_of_process(pid, "status"))
        return _Share(
            own_bytes=sizes.get("RssAnon", 0) * _KIB,
            shared_bytes=sizes.get("RssShmem", 0) * _KIB,
            other_bytes=(sizes.get("VmPTE", 0) + sizes.get("VmSwap", 0)) * _KIB
            + sizes.get("FDSize", 0) * self._buffer_bytes,
        )

    def _exact_share(self, pid: int) -> _Share:
        quick = self._quick_share(pid)
        sizes = _sizes(self._read_of_process(pid, "smaps_rollup"))
        if "Pss_Anon" not in sizes:  # Not ours to read, or gone.
            return quick
        return quick._replace(own_bytes=sizes["Pss_Anon"] * _KIB, shared_bytes=sizes.get("Pss_Shmem", 0) * _KIB)

    def _read_of_process(self, pid: int, name: str, at_most: int = _STATUS_BYTES) -> str:
        """Read what is the same for all threads of a process; nothing where the last of them has ended."""
        for place in itertools.chain((f"{pid}",), self._places_of_threads(pid)):
            text = self._read(f"{place}/{name}", at_most)
            if text and _ENDED not in text:
                return text
        return ""

    def _places_of_threads(self, pid: int) -> Iterator[str]:
        """Look for threads only when it is asked; another may begin as one ends."""
        for _ in range(_LOOKS_AT_THREADS):
            yield from (f"{pid}/task/{thread}" for thread in self._threads(pid))

    def _threads(self, pid: int) -> list[str]:
        """Number the threads of a process; those that appear last come first, for others may have ended."""
        try:
            with self._opened(f"{pid}/task") as tasks, os.scandir(tasks) as entries:
                return [entry.name for entry in entries][::-1]
        except OSError:
            return []

    def _shared_anonymous_bytes(self, pids: Iterable[int]) -> int:
        """Add up shared memory without a name, each once: what it holds, or where that is not told, what is mapped."""
        found: dict[str, int] = {}
        for pid in pids:
            for line in self._read_of_process(pid, "maps", at_most=_MAPS_BYTES_AT_MOST).splitlines():
                if line.endswith(_SHARED_ANONYMOUS):
                    addresses, _, offset, _, inode, *_ = line.split()
                    found[inode] = max(found.get(inode, 0), self._area_bytes(pid, addresses, int(offset, 16)))
        return sum(found.values())

    def _area_bytes(self, pid: int, addresses: str, offset: int) -> int:
        """Say how large the file behind a mapped area is. Most of it may be mapped nowhere; only root is told that."""
        try:
            return os.stat(f"{pid}/map_files/{addresses}", dir_fd=self.descriptor).st_blocks * 512
        except OSError:
            begin, end = (int(each, 16) for each in addresses.split("-"))
            return offset + end - begin

    def _memfd_bytes(self, pids: Iterable[int]) -> int:
        """Add up files in memory that have no name, each once; where another user's may not be listed, nothing."""
        found: dict[tuple[int, int], int] = {}
        for place in itertools.chain.from_iterable(map(self._tables_of_files, pids)):
            with contextlib.suppress(OSError), self._opened(place) as folder, os.scandir(folder) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        if os.readlink(entry.name, dir_fd=folder).startswith(_MEMFD):
                            facts = os.stat(entry.name, dir_fd=folder)
                            found[facts.st_dev, facts.st_ino] = facts.st_blocks * 512
        return sum(found.values())

    def _tables_of_files(self, pid: int) -> list[str]:
        """Say where the open files of a process are listed: with its threads, once its first one has ended."""
        if _ENDED in self._read(f"{pid}/status"):
            return [f"{pid}/task/{thread}/fd" for thread in self._threads(pid)]
        return [f"{pid}/fd"]

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.descriptor)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _read(self, path: str, at_most: int = _STATUS_BYTES) -> str:
        """Read the beginning of a file; nothing where its process has ended, or it may not be read."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.descriptor)
        except OSError:
            return ""
        try:
            text = os.read(descriptor, at_most)
            while len(text) < at_most > _STATUS_BYTES and (more := os.read(descriptor, at_most - len(text))):
                text += more
            return text.decode(errors="replace")
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
