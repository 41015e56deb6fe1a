"""Signalling of all processes of one runner, and of no other process.

`kill(-1, signal)` signals every process that the caller *may* signal, in one system call that no fork escapes. The
trusted processes above a runner therefore first give up the right to signal anything else:

* A process namespace contains no other processes.
* As root, the caller takes the runner's user as effective user, and unused numbers as real and saved users. The caller
  may then signal the runner's processes, and the runner may not signal the caller.
* With Landlock (ABI 6), the caller enters a domain of its own and the runner a domain nested inside.

Without any of these, the tree of descendants is walked until a pass finds no new process.
"""

import contextlib
import ctypes
import os
import signal
import struct
from enum import StrEnum
from pathlib import Path
from typing import assert_never

from evaluator.sandbox.kernel import landlock, syscalls


class ProcessGroup(StrEnum):
    """The mechanism that delimits the processes of one runner."""

    PROCESS_NAMESPACE = "process namespace"
    OWN_USER = "own user"
    LANDLOCK_DOMAIN = "landlock domain"
    DESCENDANTS = "descendants"


def enter_before_fork(process_group: ProcessGroup) -> None:
    """Prepare this trusted process before the fork of the process below."""
    if process_group is not ProcessGroup.PROCESS_NAMESPACE:
        # A subreaper inherits orphans, so `waitpid` tells when no process is left.
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    if process_group is ProcessGroup.LANDLOCK_DOMAIN:
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        landlock.restrict_signals()


def enter_after_fork(process_group: ProcessGroup, *, runner: int, own: int) -> None:
    """Drop the rights that the process below had to be started with; users are numbered as in `Identities`."""
    if process_group is ProcessGroup.OWN_USER:
        # The runner's group too, because listing a runner's descriptors (to measure memory) requires both.
        os.setresgid(own, runner, own)
        os.setresuid(own, runner, own)


def signal_all(process_group: ProcessGroup, sig: signal.Signals) -> None:
    """Send `sig` to every process of the runner."""
    match process_group:
        case ProcessGroup.PROCESS_NAMESPACE | ProcessGroup.OWN_USER | ProcessGroup.LANDLOCK_DOMAIN:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, sig)
        case ProcessGroup.DESCENDANTS:
            _signal_descendants(sig)
        case _:
            assert_never(process_group)


def kill_all(process_group: ProcessGroup) -> None:
    """Kill every process of the runner and wait until none is left. The caller must be the subreaper of the runner."""
    if process_group is ProcessGroup.DESCENDANTS:
        # A stopped process forks no children while the walk continues.
        signal_all(process_group, signal.SIGSTOP)
    signal_all(process_group, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def _signal_descendants(sig: signal.Signals) -> None:
    reached: set[int] = set()
    while fresh := _descendants() - reached:
        for pid in fresh:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, sig)
        reached |= fresh


def _descendants() -> set[int]:
    """Return the ids of all processes below this process."""
    parents = dict(_process_and_parent(folder) for folder in Path("/proc").glob("[0-9]*"))
    descendants: set[int] = set()
    layer = {os.getpid()}
    while layer := {pid for pid, parent in parents.items() if parent in layer}:
        descendants |= layer
    return descendants


def _process_and_parent(folder: Path) -> tuple[int, int]:
    try:
        # The process name in parentheses may contain anything; state and parent follow the last parenthesis.
        fields = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return int(folder.name), 0
    return int(folder.name), int(fields[1])


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
