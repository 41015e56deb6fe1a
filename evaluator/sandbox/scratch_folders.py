"""Temporary folders, and the removal of folders filled by untrusted processes.

No path is concatenated: a single descriptor descends by name and ascends by `..`. Stack depth, open files and path
length therefore do not grow with the depth of the tree. The code that wrote the folder must be dead.

Each folder is locked while its owner lives. The kernel releases the lock with the owner's last process, for any cause
of death and any namespace of the successor. An unlocked folder is therefore abandoned.
"""

import contextlib
import fcntl
import itertools
import logging
import os
import pwd
import signal
import stat
import tempfile
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from evaluator.interrupts import held_back

REMOVAL_S = 60.0
"""Time limit for one removal; a later start removes the rest."""
_NAMES_AT_ONCE = 4096
_GIVEN_UP_AT_MOST = 64
_BLOCK_BYTES = 4096
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SET_ASIDE = "warpgrade-left-"
"""Name prefix of folders that cannot be removed; no later start tries again."""
_log = logging.getLogger("warpgrade")


class Removal(StrEnum):
    """Outcome of a removal: `unfinished` after the time limit, `stuck` at an entry impossible to remove."""

    GONE = "gone"
    UNFINISHED = "unfinished"
    STUCK = "stuck"


def remove_folder(folder: Path, *, within_s: float = REMOVAL_S, clock: Callable[[], float] = time.monotonic) -> Removal:
    """Remove `folder`. A folder that cannot be removed is renamed and logged once; no exception is raised."""
    try:
        outcome = _emptied(folder, clock() + within_s, clock)
        if outcome is Removal.GONE:
            folder.rmdir()
    except FileNotFoundError:
        return Removal.GONE
    except OSError:
        outcome = Removal.STUCK
    if outcome is Removal.STUCK:
        aside = folder.with_name(f"{_SET_ASIDE}{folder.name}")
        with contextlib.suppress(OSError):
            folder.rename(aside)
        _log.warning("%s cannot be removed; it is left there", aside if aside.exists() else folder)
    return outcome


def hand_over(
    folder: Path, user: int, group: int, *, within_s: float = REMOVAL_S, clock: Callable[[], float] = time.monotonic
) -> bool:
    """Change the owner of `folder` and its content to `user` and `group`, without following symbolic links.

    Needs root. Return whether the whole tree was changed; a tree that takes longer than `within_s` is changed in part.
    """
    deadline = clock() + within_s

    def change(parent: int, entry: "os.DirEntry[str]") -> None:
        os.chown(entry.name, user, group, dir_fd=parent, follow_symlinks=False)

    try:
        os.chown(folder, user, group, follow_symlinks=False)
        return _visited(folder, change, lambda: clock() < deadline)
    except OSError:
        return False


def taken_bytes(folder: Path, enough_bytes: int) -> int:
    """Return the bytes on disk of the files in `folder`; counting stops beyond `enough_bytes`.

    An empty file counts as a block, because file metadata takes space elsewhere. A running writer can hide a part from
    a count by moving files between folders; the next count sees the part.
    """
    total_bytes = 0

    def count(_: int, entry: "os.DirEntry[str]") -> None:
        nonlocal total_bytes
        total_bytes += _disk_bytes(entry)

    with contextlib.suppress(OSError):
        _visited(folder, count, lambda: total_bytes <= enough_bytes)
    return total_bytes


def _disk_bytes(entry: "os.DirEntry[str]") -> int:
    try:
        return max(entry.stat(follow_symlinks=False).st_blocks * 512, _BLOCK_BYTES)
    except OSError:
        return _BLOCK_BYTES


def _visited(top: Path, visit: Callable[[int, "os.DirEntry[str]"], None], goes_on: Callable[[], bool]) -> bool:
    """Call `visit` with each entry below `top` and its open folder. Return False if `goes_on` has ended the walk.

    Raises OSError if a folder cannot be listed, or as `visit`.
    """
    with contextlib.closing(_Cursor(top)) as cursor:
        waiting = [_subfolders(cursor.at, visit)]
        while waiting:
            if not goes_on():
                return False
            if waiting[-1]:
                if cursor.go_down(waiting[-1].pop()):
                    waiting.append(_subfolders(cursor.at, visit))
            else:
                waiting.pop()
                cursor.go_up()
    return True


def _subfolders(folder: int, visit: Callable[[int, "os.DirEntry[str]"], None]) -> list[str]:
    """Call `visit` with each entry of an open folder; return the names of its folders."""
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            visit(folder, entry)
            if entry.is_dir(follow_symlinks=False):
                names.append(entry.name)
    return names


class _Cursor:
    """A descriptor inside a tree of folders, with the path from the top."""

    def __init__(self, top: Path) -> None:
        """Open `top`. Raises OSError if `top` is not a folder."""
        self.at = os.open(top, _OPEN)
        self._way: list[tuple[tuple[int, int], str]] = []

    def go_down(self, name: str) -> bool:
        """Enter the folder `name`. Return False if it cannot be entered or lies on another file system."""
        try:
            below = os.open(name, _OPEN, dir_fd=self.at)
        except OSError:
            return False
        identity = _identity(self.at)
        if _identity(below)[0] != identity[0]:
            os.close(below)
            return False
        self._way.append((identity, name))
        self._stand_in(below)
        return True

    def go_up(self) -> str | None:
        """Return to the parent folder. Return the name of the folder that was left, None at the top.

        Raises OSError if the parent is not the folder that the descent came from: another process moves folders.
        """
        if not self._way:
            return None
        identity, name = self._way.pop()
        self._stand_in(os.open("..", _OPEN, dir_fd=self.at))
        if _identity(self.at) != identity:
            raise FileNotFoundError(f"the folder above {name!r} was moved")
        return name

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.at)

    def _stand_in(self, folder: int) -> None:
        os.close(self.at)
        self.at = folder


class _Level(NamedTuple):
    """A folder on the path of a removal: remaining subfolders, and names known not to be removable."""

    folders: list[str]
    given_up: set[str]


def _emptied(top: Path, deadline: float, clock: Callable[[], float]) -> Removal:
    """Remove everything inside `top`."""
    top.chmod(stat.S_IRWXU)
    given_up = 0
    with contextlib.closing(_Cursor(top)) as cursor:
        levels = [_Level([], set())]
        while clock() < deadline:
            level = levels[-1]
            if level.folders:
                name = level.folders.pop()
                if _removed(cursor.at, name):
                    continue
                if cursor.go_down(name):
                    levels.append(_Level([], set()))
                    continue
                level.given_up.add(name)
            elif not _unlink_some(cursor.at, level):
                given_up += len(level.given_up)
                levels.pop()
                subfolder = cursor.go_up()
                if subfolder is None:
                    return Removal.STUCK if given_up else Removal.GONE
                if not _removed(cursor.at, subfolder):
                    levels[-1].given_up.add(subfolder)
            if given_up + len(levels[-1].given_up) > _GIVEN_UP_AT_MOST:
                return Removal.STUCK
    return Removal.UNFINISHED


def _removed(parent: int, name: str) -> bool:
    """Remove the folder `name` if empty; otherwise make it accessible."""
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError:
        with contextlib.suppress(OSError):
            os.chmod(name, stat.S_IRWXU, dir_fd=parent)
        return False
    return True


def _unlink_some(folder: int, level: _Level) -> bool:
    """Unlink files of an open folder, some thousands at a time; collect subfolders. Return False if none is left."""
    is_listed = False
    with os.scandir(folder) as entries:
        fresh = (entry for entry in entries if entry.name not in level.given_up)
        for entry in itertools.islice(fresh, _NAMES_AT_ONCE):
            is_listed = True
            if entry.is_dir(follow_symlinks=False):
                level.folders.append(entry.name)
                continue
            try:
                os.unlink(entry.name, dir_fd=folder)
            except OSError:
                level.given_up.add(entry.name)
    return is_listed


def _identity(folder: int) -> tuple[int, int]:
    facts = os.fstat(folder)
    return facts.st_dev, facts.st_ino


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
