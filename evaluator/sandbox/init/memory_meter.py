"""Memory held by all processes of a runner together, mapped or not.

RLIMIT_AS bounds a single process and ignores unmapped memory. The supervisor therefore adds up mapped memory (private
and shared), page tables and the largest possible socket queues. Memfds are added where a runner may create some. The
supervisor reads the machine's /proc from outside the sandbox, four times a second, 0.1 ms each.

Shared memory can outlive its page table entries, after MADV_DONTNEED or the exit of a child that wrote. Most of a
shared file may be mapped nowhere, so the size of the file behind the mapping counts. A process may continue after its
first thread has exited. /proc then reports nothing for the process, and another thread is read instead.
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
"""Part of the status of a thread that has exited."""
_LOOKS_AT_THREADS = 4
_FEW_PROCESSES = 16
_MOST_MAPPINGS = 1 << 20
"""Limit of mappings of all processes. The kernel frees some 200,000 in a second at the end of the processes, and holds
a quarter of a KiB for each. A few processes have fewer: see `_MAPS_BYTES_AT_MOST`."""
_SHARED_ANONYMOUS = " /dev/zero (deleted)"
_MAPS_BYTES_AT_MOST = 8 << 20
"""Read limit for a list of mappings: 100 000 entries, more than the kernel's default maximum of 65 530 per process."""


class _Share(NamedTuple):
    """Memory of one process: private bytes, shared bytes, and other memory that the process may hold."""

    own_bytes: int
    shared_bytes: int
    other_bytes: int


class MemoryMeter:
    """Reader of the machine's /proc, opened before the sandbox layers are entered. No child may keep the descriptor."""

    def __init__(self, proc: str = "/proc") -> None:
        """Open `proc`. Raises OSError without /proc."""
        self.descriptor = os.open(proc, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._buffer_bytes = _largest_buffer_bytes(proc)

    def exceeds(self, top: int, limit_bytes: int, *, memfds: bool) -> bool:
        """Return whether the processes below `top` hold more than `limit_bytes`, or too many mappings.

        `memfds` says whether they can create memfds.

        A quick pass counts shared pages once for each process. Only if the quick sum is too large, a second pass counts
        each page once.
        """
        pids = list(self._below(top))
        if len(pids) > _FEW_PROCESSES and self._has_many_mappings(pids):
            return True
        files_bytes = self._memfd_bytes(pids) if memfds else 0
        # The machine's total bounds the runner's shared memory.
        most_bytes = _sizes(self._read("meminfo")).get("Shmem", 0) * _KIB
        if _sum(map(self._quick_share, pids), max(files_bytes, most_bytes)) <= limit_bytes:
            return False
        hidden_bytes = self._shared_anonymous_bytes(pids)
        return _sum(map(self._exact_share, pids), files_bytes + hidden_bytes) > limit_bytes

    def _has_many_mappings(self, pids: Iterable[int]) -> bool:
        """Return whether all processes together have more than `_MOST_MAPPINGS`; the rest is not read then."""
        mappings_left = _MOST_MAPPINGS
        for pid in pids:
            mappings_left -= self._read_of_process(pid, "maps", at_most=_MAPS_BYTES_AT_MOST).count("\n")
            if mappings_left < 0:
                return True
        return False

    def _below(self, top: int) -> Iterator[int]:
        """Yield the ids of the processes below `top`."""
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
        if "Pss_Anon" not in sizes:  # Not readable, or exited.
            return quick
        return quick._replace(own_bytes=sizes["Pss_Anon"] * _KIB, shared_bytes=sizes.get("Pss_Shmem", 0) * _KIB)

    def _read_of_process(self, pid: int, name: str, at_most: int = _STATUS_BYTES) -> str:
        """Read a file with equal content for all threads of a process; return "" after the last thread's exit."""
        for folder in itertools.chain((f"{pid}",), self._thread_folders(pid)):
            text = self._read(f"{folder}/{name}", at_most)
            if text and _ENDED not in text:
                return text
        return ""

    def _thread_folders(self, pid: int) -> Iterator[str]:
        """Yield the folders of threads, listed on demand and repeatedly: a thread may start while another exits."""
        for _ in range(_LOOKS_AT_THREADS):
            yield from (f"{pid}/task/{thread}" for thread in self._threads(pid))

    def _threads(self, pid: int) -> list[str]:
        """Return the thread ids of a process, newest first: older threads may have exited."""
        try:
            with self._opened(f"{pid}/task") as tasks, os.scandir(tasks) as entries:
                return [entry.name for entry in entries][::-1]
        except OSError:
            return []

    def _shared_anonymous_bytes(self, pids: Iterable[int]) -> int:
        """Add up anonymous shared memory, each object once: its size, or its mapped part if the size is hidden."""
        sizes: dict[str, int] = {}
        for pid in pids:
            for line in self._read_of_process(pid, "maps", at_most=_MAPS_BYTES_AT_MOST).splitlines():
                if line.endswith(_SHARED_ANONYMOUS):
                    addresses, _, offset, _, inode, *_ = line.split()
                    sizes[inode] = max(sizes.get(inode, 0), self._area_bytes(pid, addresses, int(offset, 16)))
        return sum(sizes.values())

    def _area_bytes(self, pid: int, addresses: str, offset: int) -> int:
        """Return the size of the file behind a mapping; without root's right to read it, the end of the mapped part."""
        try:
            return os.stat(f"{pid}/map_files/{addresses}", dir_fd=self.descriptor).st_blocks * 512
        except OSError:
            begin, end = (int(address, 16) for address in addresses.split("-"))
            return offset + end - begin

    def _memfd_bytes(self, pids: Iterable[int]) -> int:
        """Add up memfds, each once; return 0 where the descriptors of another user may not be listed."""
        sizes: dict[tuple[int, int], int] = {}
        for table in itertools.chain.from_iterable(map(self._tables_of_files, pids)):
            with contextlib.suppress(OSError), self._opened(table) as folder, os.scandir(folder) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        if os.readlink(entry.name, dir_fd=folder).startswith(_MEMFD):
                            facts = os.stat(entry.name, dir_fd=folder)
                            sizes[facts.st_dev, facts.st_ino] = facts.st_blocks * 512
        return sum(sizes.values())

    def _tables_of_files(self, pid: int) -> list[str]:
        """Return the folders that list a process's open files: those of threads, once the first thread has exited."""
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
        """Read the beginning of a file; return "" if the process has exited or the file may not be read."""
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
    """Add up. Mapped memfds are already among the shared bytes, so the larger of both numbers counts."""
    private, shared, other = map(sum, zip(_Share(0, 0, 0), *shares, strict=True))
    return private + max(shared, files_bytes) + other


def _sizes(text: str) -> dict[str, int]:
    """Parse the lines `Name: number` of a file in /proc."""
    pairs = (line.partition(":") for line in text.splitlines())
    words = ((name, rest.split()) for name, _, rest in pairs)
    return {name: int(values[0]) for name, values in words if values and values[0].isdigit()}


def _largest_buffer_bytes(proc: str) -> int:
    """Return the limit of one socket queue: twice the payload limit, because the kernel also counts its own records."""
    try:
        size_bytes = int(Path(proc, "sys/net/core/wmem_default").read_text(encoding="ascii"))
    except (OSError, ValueError):
        size_bytes = _DEFAULT_BUFFER_BYTES
    return min(2 * size_bytes, _BUFFERS_BYTES_AT_MOST)
