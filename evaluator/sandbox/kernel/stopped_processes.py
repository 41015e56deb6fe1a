"""Other processes in a runner's process namespace, and whether all their threads have stopped.

A freeze ends a timed call, so the usual case, no other process, must cost microseconds. A full listing of /proc takes
13 us or more. This listing starts at the runner's first process, after all entries of other kinds: 4 us.
"""

import ctypes
import os
import struct
from pathlib import Path

from evaluator.sandbox.kernel import syscalls

_ENTRY = struct.Struct("=QqHB")
"""struct linux_dirent64 before the name: inode, offset of the next entry, length of the entry, type."""
_BUFFER_BYTES = 4096
_STAT_BYTES = 2048
_GONE = (True, 1)
_STATE, _THREADS, _MEMORY = 0, 17, 20
"""Fields of /proc/PID/stat (proc_pid_stat(5)), counted from behind the name."""
_AT_REST = (b"T", b"Z", b"X")
"""Stopped, zombie, dead. A process asleep inside the kernel may still do some work. A process without memory is dying
and does none, although freeing its memory may take long."""


class OtherProcesses:
    """Processes of a namespace beside the namespace's first process and the runner's first process, the second."""

    def __init__(self, first_pid: int, proc: str = "/proc") -> None:
        """Find the offset of `first_pid`, which must exist, in `proc`: the /proc of this process namespace alone."""
        self._proc = proc
        self._folder = os.open(proc, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._buffer = ctypes.create_string_buffer(_BUFFER_BYTES)
        self._content = memoryview(self._buffer)
        self._first_pid = first_pid
        self._begin = 0
        entries = self._entries()
        names = [name for name, _ in entries]
        # The preceding entry holds the offset. Process ids ascend, so all other processes come later.
        self._begin = entries[names.index(str(first_pid).encode()) - 1][1]

    def pids(self) -> list[int]:
        """Return the ids of the other processes."""
        return [pid for name, _ in self._entries() if (pid := int(name)) != self._first_pid]

    def at_rest(self, pid: int) -> bool:
        """Return whether every thread of process `pid` has stopped or exited."""
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
        # The process name in parentheses may contain anything, even parentheses.
        fields = text.rpartition(b")")[2].split()
        return fields[_STATE] in _AT_REST or fields[_MEMORY] == b"0", int(fields[_THREADS])

    def _entries(self) -> list[tuple[bytes, int]]:
        """List names from `_begin` on, each with the offset of the next entry."""
        entries = []
        os.lseek(self._folder, self._begin, os.SEEK_SET)
        # A signal may shorten a listing; only an empty listing is the end.
        while length := syscalls.getdents(self._folder, self._buffer):
            at = 0
            while at < length:
                _, next_at, size_bytes, _ = _ENTRY.unpack_from(self._content, at)
                name = bytes(self._content[at + _ENTRY.size : at + size_bytes]).partition(b"\0")[0]
                entries.append((name, next_at))
                at += size_bytes
        return entries
