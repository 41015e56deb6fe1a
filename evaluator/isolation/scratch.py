"""Folders in the temporary folder that end with their owner, or, where that is killed, at the next start.

Each is locked as long as its owner lives: the kernel lets go of the lock with the owner's last process, whatever ended
it, and whatever namespaces its successor is in. So what is not locked belongs to nobody any more.
"""

import contextlib
import fcntl
import os
import pwd
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from evaluator.isolation.folders import Removal, remove_folder

_PREFIX = "warpgrade-"
_KINDS = ("build-", "run-")
_TRIES = 100
_TIDYING_S = 5.0
"""How long a start may spend on what dead processes left; the next one goes on from there."""


class Scratch:
    """A folder for the time of one compilation (`build`) or of one runner (`run`)."""

    def __init__(self, kind: str) -> None:
        """Make it. Raises OSError where there is no room."""
        # Somebody who tidies up may find it before it is locked, and take it for a dead one's: then another is made.
        for _ in range(_TRIES):
            self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-"))
            if (lock := _locked(self.path)) is not None:
                self._lock = lock
                return
        raise FileNotFoundError(f"{self.path} is removed as soon as it is made")

    def close(self) -> None:
        """Remove it with all that untrusted code has written there, once that code is dead. Twice is no more.

        Raises nothing: what takes too long is left for a later start, and what cannot be removed is left for good.
        """
        if self._lock < 0:
            return
        remove_folder(self.path)
        os.close(self._lock)
        self._lock = -1


def remove_abandoned(top: Path | None = None, *, clock: Callable[[], float] = time.monotonic) -> list[Path]:
    """Remove what dead processes of this user left in the temporary folder (`top`); say what that was.

    What somebody else might still use stays: a folder of another user, one that is locked, or anything else's name.
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
    """Say whether this user made a folder. Root gives a runner's to a user that no account has (`Identities`)."""
    if facts.st_uid == os.geteuid():
        return True
    try:
        pwd.getpwuid(facts.st_uid)
    except KeyError:
        return os.geteuid() == 0
    return False


def _locked(folder: Path) -> int | None:
    """Lock a folder: a descriptor that holds the lock. None where another process has it, or it is gone meanwhile."""
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
