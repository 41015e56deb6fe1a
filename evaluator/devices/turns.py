"""Turns of several processes on one resource, one after the other.

A turn begins at the gate, a lock that one process holds at a time, and lasts as long as its lock of the room:

    gate | wait until the room is empty, with the gate closed | room | open the gate | ... | leave the room

The closed gate stops all later turns: the turn at the gate is the next. The kernel holds both locks (`flock`): the
death of a process ends the process's turn, and a death at the gate opens the gate.

A process may stop at the gate, in a debugger for instance. After `_PATIENCE_S` in front of a closed gate, a turn enters
an empty room without passing the gate: fairness ends, and the room is never left unused.
"""

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Protocol

_LOOK_S = 0.01
_PATIENCE_S = 5.0


class Latch(Protocol):
    """Lock of one holder."""

    def try_lock(self) -> bool:
        """Lock now, without waiting. Return whether the lock is held."""

    def unlock(self) -> None:
        """Release the lock, if held."""


class FileLatch:
    """Lock of a file by the kernel, for this process. All users of the machine may lock the same file."""

    def __init__(self, path: Path) -> None:
        """Name the file, which the first attempt opens or creates."""
        self._path = path
        self._descriptor: int | None = None

    def try_lock(self) -> bool:
        """Lock now, without waiting. Raises OSError if the file cannot be opened; no symbolic link is followed."""
        return self._try(fcntl.LOCK_EX)

    def is_free(self) -> bool:
        """Return whether no process holds the lock, for a caller that does not. Others may look at the same time."""
        try:
            return self._try(fcntl.LOCK_SH)
        finally:
            self.unlock()

    def unlock(self) -> None:
        """Release the lock, also for children that inherited the file."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            try:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            finally:
                os.close(descriptor)

    def _try(self, how: int) -> bool:
        if self._descriptor is None:
            self._descriptor = _opened(self._path)
        try:
            fcntl.flock(self._descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class Turn:
    """One process's turn: outside, at the gate, or in the room."""

    def __init__(self, gate: Latch, room: Latch) -> None:
        """Stay outside."""
        self._gate = gate
        self._room = room
        self._at_gate = False
        self.has_begun = False

    def try_begin(self, *, past_gate: bool = False) -> bool:
        """Go as far as possible without waiting, `past_gate` if the gate is closed. Return whether the turn has begun.

        After False, the caller calls again, or gives up with `end`.
        """
        self._must_be_outside()
        self._at_gate = self._at_gate or self._gate.try_lock()
        if not (self._at_gate or past_gate) or not self._try_room():
            return False
        self._open_gate()
        return True

    def begin(self, wait_s: float, look_s: float = _LOOK_S) -> bool:
        """Begin a turn within `wait_s`, with a look every `look_s`. Return false, and stay outside, if time ran out.

        An attempt that must not wait leaves the gate alone: others would see the gate closed for an instant.
        """
        self._must_be_outside()
        with contextlib.ExitStack() as given_up:
            given_up.callback(self.end)
            if not (self._wait(wait_s, look_s) if wait_s > 0 else self._try_room()):
                return False
            given_up.pop_all()
        return True

    def end(self) -> None:
        """Leave the room and the gate. Idempotent."""
        self.has_begun = False
        try:
            self._room.unlock()
        finally:
            self._open_gate()

    def _wait(self, wait_s: float, look_s: float) -> bool:
        began_s = time.monotonic()
        until_s = began_s + wait_s
        while not self.try_begin(past_gate=time.monotonic() - began_s > _PATIENCE_S):
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            time.sleep(min(look_s, left_s))
        return True

    def _try_room(self) -> bool:
        self.has_begun = self._room.try_lock()
        return self.has_begun

    def _must_be_outside(self) -> None:
        if self.has_begun:
            raise RuntimeError("a turn must end before the next one begins")

    def _open_gate(self) -> None:
        self._at_gate = False
        self._gate.unlock()


def _opened(path: Path) -> int:
    """Open a file for locks, and create the file if missing. Reading suffices: /tmp protects files of other users."""
    # Without O_NONBLOCK, the open of another user's pipe would wait for a writer.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, flags)
    descriptor = os.open(path, flags | os.O_CREAT, 0o644)
    with contextlib.suppress(PermissionError):  # Another user was faster, and does the same.
        os.fchmod(descriptor, 0o644)  # The umask may have removed what other users need.
    return descriptor
