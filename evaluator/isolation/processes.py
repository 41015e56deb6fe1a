"""What else lives beside the first process of a process namespace, and whether all of it has stopped.

A freeze ends a clock, so the usual case, that nobody else is there, must cost microseconds. A whole listing of /proc
costs 13 us and more. Here it begins where the first process stands, past all that is no process: 4 us.
"""

import ctypes
import os
import struct
from pathlib import Path

from evaluator.isolation import syscalls

_ENTRY = struct.Struct("=QqHB")
"""struct linux_dirent64 before its name: inode, where the next entry begins, bytes of this one, type."""
_BUFFER_BYTES = 4096
_STAT_BYTES = 2048
_GONE = (True, 1)
_STATE, _THREADS, _MEMORY = 0, 17, 20
"""The fields of /proc/PID/stat (proc_pid_stat(5)) that matter here, counted from behind the name."""
_AT_REST = (b"T", b"Z", b"X")
"""Stopped, dead and not buried, dead. What sleeps inside of the kernel may do a piece of work there yet; not so what
has no memory any more: it is dying, and giving back what it had may take long."""


class Others:
    """The processes of a namespace beside this one, its first, and the runner's first, which is the second in it."""

    def __init__(self, first_pid: int, proc: str = "/proc") -> None:
        """Find the place of `first_pid`, which must be there, in `proc`: a /proc of this process namespace alone."""
        self._proc = proc
        self._folder = os.open(proc, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._buffer = ctypes.create_string_buffer(_BUFFER_BYTES)
        self._content = memoryview(self._buffer)
        self._first_pid = first_pid
        self._begin = 0
        entries = self._entries()
        names = [name for name, _ in entries]
        # The entry before it says where it begins. Numbers are given in ascending order: all others come after it.
        self._begin = entries[names.index(str(first_pid).encode()) - 1][1]

    def pids(self) -> list[int]:
        """Number the other processes."""
        return [pid for name, _ in self._entries() if (pid := int(name)) != self._first_pid]

    def at_rest(self, pid: int) -> bool:
        """Say whether every thread of process `pid` has stopped, or ended."""
        rests, threads = self._rest_and_threads(f"{pid}")
        if threads == 1:
            return rests
        try:
            tasks = [task.name for task in Path(f"{self._proc}/{pid}/task").iterdir()]
        except (FileNotFoundError, ProcessLookupError):
            return True
        return all(self._rest_and_threads(f"{pid}/task/{task}")[0] for task in tasks)

    def _rest_and_threads(self, of: str) -> tuple[bool, int]:
        try:
            file = os.open(f"{of}/stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
        except (FileNotFoundError, ProcessLookupError):
            return _GONE
        try:
            text = os.read(file, _STAT_BYTES)
        except ProcessLookupError:
            return _GONE
        finally:
            os.close(file)
        # The name stands in parentheses and may hold anything, more of them too.
        fields = text.rpartition(b")")[2].split()
        return fields[_STATE] in _AT_REST or fields[_MEMORY] == b"0", int(fields[_THREADS])

    def _entries(self) -> list[tuple[bytes, int]]:
        """List names from `_begin` on, each with the place where the next entry begins."""
        found = []
        os.lseek(self._folder, self._begin, os.SEEK_SET)
        # A signal may cut one listing short; only an empty one is the end.
        while length := syscalls.getdents(self._folder, self._buffer):
            at = 0
            while at < length:
                _, next_at, size_bytes, _ = _ENTRY.unpack_from(self._content, at)
                name = bytes(self._content[at + _ENTRY.size : at + size_bytes]).partition(b"\0")[0]
                found.append((name, next_at))
                at += size_bytes
        return found
