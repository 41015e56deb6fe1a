"""Folders that untrusted code has written: removed, or given to another user, at any depth and without an exception.

No path is ever put together: one descriptor goes down by a name and up by `..`, so neither the stack, nor the number of
open files, nor the length of a path grows with the depth. The code that wrote the folder must be dead.
"""

import contextlib
import itertools
import logging
import os
import stat
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

REMOVAL_S = 60.0
"""How long the removal of one folder may take; what is left then goes at a later start."""
_NAMES_AT_ONCE = 4096
_GIVEN_UP_AT_MOST = 64
_BLOCK_BYTES = 4096
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SET_ASIDE = "warpgrade-left-"
"""How the name of a folder begins that cannot be removed: no later start tries it again."""
_log = logging.getLogger("warpgrade")


class Removal(StrEnum):
    """What came of a removal: `unfinished` for want of time, `stuck` at something that cannot be removed."""

    GONE = "gone"
    UNFINISHED = "unfinished"
    STUCK = "stuck"


def remove_folder(folder: Path, *, within_s: float = REMOVAL_S, clock: Callable[[], float] = time.monotonic) -> Removal:
    """Remove `folder`. One that cannot be removed is renamed, and named once in the log; nothing is raised."""
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
    """Give `folder` and all in it to `user` and `group`, without following a symbolic link. Needs root.

    Returns whether all of it was given away; a tree that takes longer than `within_s` is given away in part.
    """
    deadline = clock() + within_s
    try:
        os.chown(folder, user, group, follow_symlinks=False)
        with contextlib.closing(_Cursor(folder)) as cursor:
            waiting = [_given(cursor.at, user, group)]
            while waiting:
                if clock() >= deadline:
                    return False
                if waiting[-1]:
                    if cursor.go_down(waiting[-1].pop()):
                        waiting.append(_given(cursor.at, user, group))
                else:
                    waiting.pop()
                    cursor.go_up()
    except OSError:
        return False
    return True


def _given(folder: int, user: int, group: int) -> list[str]:
    """Give away what lies in an open folder; name the folders among it."""
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            os.chown(entry.name, user, group, dir_fd=folder, follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                names.append(entry.name)
    return names


def taken_bytes(folder: Path, enough_bytes: int) -> int:
    """Add up what the files of `folder` take on the disk; counting ends beyond `enough_bytes`.

    An empty file counts as a block, for it takes one elsewhere. Code that still writes may hide a part by moving it
    about, until the next look.
    """
    total_bytes = 0
    with contextlib.suppress(OSError), contextlib.closing(_Cursor(folder)) as cursor:
        waiting: list[list[str]] = [[]]
        fresh = True
        while waiting and total_bytes <= enough_bytes:
            if fresh:
                with os.scandir(cursor.at) as entries:
                    for entry in entries:
                        total_bytes += _disk_bytes(entry)
                        if entry.is_dir(follow_symlinks=False):
                            waiting[-1].append(entry.name)
            if waiting[-1]:
                fresh = cursor.go_down(waiting[-1].pop())
                waiting += [[]] if fresh else []
            else:
                fresh = False
                waiting.pop()
                cursor.go_up()
    return total_bytes


def _disk_bytes(entry: "os.DirEntry[str]") -> int:
    try:
        return max(entry.stat(follow_symlinks=False).st_blocks * 512, _BLOCK_BYTES)
    except OSError:
        return _BLOCK_BYTES


class _Cursor:
    """One descriptor in a tree of folders, and the way that led it there."""

    def __init__(self, top: Path) -> None:
        """Stand in `top`. Raises OSError where that is no folder."""
        self.at = os.open(top, _OPEN)
        self._way: list[tuple[tuple[int, int], str]] = []

    def go_down(self, name: str) -> bool:
        """Enter the folder `name`; False where it cannot be entered, or lies on another file system."""
        try:
            below = os.open(name, _OPEN, dir_fd=self.at)
        except OSError:
            return False
        here = _identity(self.at)
        if _identity(below)[0] != here[0]:
            os.close(below)
            return False
        self._way.append((here, name))
        self._stand_in(below)
        return True

    def go_up(self) -> str | None:
        """Go back to the folder above; gives the name of the one that was left, None at the top.

        Raises OSError where the folder above is not the one that was left: somebody moves folders about.
        """
        if not self._way:
            return None
        identity, name = self._way.pop()
        self._stand_in(os.open("..", _OPEN, dir_fd=self.at))
        if _identity(self.at) != identity:
            raise FileNotFoundError(f"the folder above {name!r} was moved")
        return name

    def close(self) -> None:
        """Let go of the tree."""
        os.close(self.at)

    def _stand_in(self, folder: int) -> None:
        os.close(self.at)
        self.at = folder


class _Level(NamedTuple):
    """One folder on the way of a removal: the folders found in it, and the names that do not go."""

    folders: list[str]
    given_up: set[str]


def _emptied(top: Path, deadline: float, clock: Callable[[], float]) -> Removal:
    """Remove all that lies in `top`."""
    top.chmod(stat.S_IRWXU)
    given_up = 0
    with contextlib.closing(_Cursor(top)) as cursor:
        levels = [_Level([], set())]
        while clock() < deadline:
            here = levels[-1]
            if here.folders:
                name = here.folders.pop()
                if _removed(cursor.at, name):
                    continue
                if cursor.go_down(name):
                    levels.append(_Level([], set()))
                    continue
                here.given_up.add(name)
            elif not _unlink_some(cursor.at, here):
                given_up += len(here.given_up)
                levels.pop()
                left = cursor.go_up()
                if left is None:
                    return Removal.STUCK if given_up else Removal.GONE
                if not _removed(cursor.at, left):
                    levels[-1].given_up.add(left)
            if given_up + len(levels[-1].given_up) > _GIVEN_UP_AT_MOST:
                return Removal.STUCK
    return Removal.UNFINISHED


def _removed(parent: int, name: str) -> bool:
    """Remove the folder `name` if it is empty; if not, make it one that can be entered."""
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError:
        with contextlib.suppress(OSError):
            os.chmod(name, stat.S_IRWXU, dir_fd=parent)
        return False
    return True


def _unlink_some(folder: int, level: _Level) -> bool:
    """Unlink files of an open folder and collect the folders in it, some thousands at a time; False: none is left."""
    seen = False
    with os.scandir(folder) as entries:
        fresh = (entry for entry in entries if entry.name not in level.given_up)
        for entry in itertools.islice(fresh, _NAMES_AT_ONCE):
            seen = True
            if entry.is_dir(follow_symlinks=False):
                level.folders.append(entry.name)
                continue
            try:
                os.unlink(entry.name, dir_fd=folder)
            except OSError:
                level.given_up.add(entry.name)
    return seen


def _identity(folder: int) -> tuple[int, int]:
    facts = os.fstat(folder)
    return facts.st_dev, facts.st_ino
