"""Temporary folders, removed with their owner or, after a kill, at the next start.

Each folder is locked while its owner lives. The kernel releases the lock with the owner's last process, for any cause
of death and any namespace of the successor. An unlocked folder is therefore abandoned.
"""

import contextlib
import fcntl
import os
import pwd
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from evaluator.interrupts import held_back
from evaluator.sandbox.filesystem.untrusted_folders import Removal, remove_folder

_PREFIX = "warpgrade-"
_KINDS = ("build-", "run-")
_TRIES = 100
_TIDYING_S = 5.0
"""Time limit per start for the removal of abandoned folders; the next start continues."""


class Scratch:
    """A folder for one compilation (`build`) or one runner (`run`)."""

    def __init__(self, kind: str) -> None:
        """Create the folder. Raises OSError if the disk is full."""
        # Another start may remove the folder as abandoned before the lock is taken; then create another.
        for _ in range(_TRIES):
            self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-"))
            if (lock := _locked(self.path)) is not None:
                self._lock = lock
                return
        raise FileNotFoundError(f"{self.path} is removed as soon as it is made")

    def close(self) -> None:
        """Remove the folder with everything written by untrusted code, which must be dead. A second call does nothing.

        Raises nothing. A removal that takes too long is finished by a later start; entries impossible to remove stay.
        """
        if self._lock < 0:
            return
        try:
            remove_folder(self.path)
        except BaseException:  # Ctrl-C, or the deadline: the removal comes first
            remove_folder(self.path)
            raise
        lock, self._lock = self._lock, -1
        os.close(lock)


def entered(kind: str, stack: contextlib.ExitStack) -> Scratch:
    """Create a folder that `stack` removes, whenever Ctrl-C comes. Raises OSError if the disk is full."""
    with held_back(signal.SIGINT):
        scratch = Scratch(kind)
        stack.callback(scratch.close)
    return scratch


def remove_abandoned(top: Path | None = None, *, clock: Callable[[], float] = time.monotonic) -> list[Path]:
    """Remove the folders left by dead processes of this user in the temporary folder (`top`); return their paths.

    Folders of other users, locked folders and all other names stay: another process may use them.
    """
    top = top or Path(tempfile.gettempdir())
    deadline = clock() + _TIDYING_S
    removed = []
    with contextlib.suppress(OSError), os.scandir(top) as entries:
        for entry in entries:
            if clock() >= deadline:
                break
            if not entry.name.startswith(tuple(_PREFIX + kind for kind in _KINDS)):
                continue
            path = Path(entry.path)
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False) and _is_ours(entry.stat(follow_symlinks=False)):
                    lock = _locked(path)
                    if lock is not None:
                        outcome = remove_folder(path, within_s=deadline - clock(), clock=clock)
                        os.close(lock)
                        removed += [path] if outcome is Removal.GONE else []
    return removed


def _is_ours(facts: os.stat_result) -> bool:
    """Return whether this user created a folder. Root gives runners' folders to unused users (`Identities`)."""
    if facts.st_uid == os.geteuid():
        return True
    try:
        pwd.getpwuid(facts.st_uid)
    except KeyError:
        return os.geteuid() == 0
    return False


def _locked(folder: Path) -> int | None:
    """Lock a folder. Return the locked descriptor, or None if another process holds the lock or the folder is gone."""
    descriptor = -1
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), folder.lstat()):
            return descriptor
    except OSError:
        pass
    if descriptor >= 0:
        os.close(descriptor)
    return None
