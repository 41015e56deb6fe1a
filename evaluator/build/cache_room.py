"""The room that the cache takes: how much there is of what, which entry has to go, and how one goes.

Processes share the cache without asking each other. So an entry leaves by one rename and is deleted afterwards, one
that somebody reads by its path is locked (`hold`), and one that was used a moment ago is left alone. All of this is
best effort: what cannot be removed stays, and no grade fails because of it.
"""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from evaluator.errors import UsageError
from evaluator.records import Record

MANIFEST = "manifest.json"
"""The file in an entry that is written once, with it."""
DRAFT = ".new-"
"""How the name of an entry begins that is still being written."""
LIMIT_VARIABLE = "WARPGRADE_CACHE_LIMIT"
DEFAULT_LIMIT_BYTES = 10 << 30
RECENT_S = 900.0
"""An entry that was used so lately stays: longer than a compiler may take for one extension."""
_DOOMED = ".old-"
_DRAFT_S = 3600.0
"""A draft this old has lost its writer: writing one takes seconds."""
_STAMP = ".trimmed"
_BETWEEN_TRIMS_S = 300.0
_LARGE = 0.01
"""An entry of so much of the limit has the room looked at at once."""
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*(?:([KMGT])(i?)B?|B)?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


class Shelf(StrEnum):
    """The kinds of entries, and the names of their folders."""

    BUILDS = "builds"  # submissions' extensions
    FAILURES = "failures"  # what compilers said of those that have none
    PARTS = "parts"  # our own native code: allocators, kernels, the emulator's runtime and its precompiled header
    PREPARED = "prepared"  # what split builds share
    MEASURED = "measured"  # facts about GPUs and problems, and baselines


class ShelfUsage(Record, frozen=True):
    """How much there is of one kind."""

    kind: Shelf
    entries: int
    bytes: int


class CacheUsage(Record, frozen=True):
    """What the cache holds. `unfinished_bytes` is what writers are at, or left when they were killed."""

    folder: str
    limit_bytes: int
    bytes: int
    shelves: list[ShelfUsage]
    unfinished_bytes: int


class CacheCleared(Record, frozen=True):
    """What went, by kind, and how many entries stayed: a process reads them, or this user may not remove them."""

    folder: str
    bytes: int
    shelves: list[ShelfUsage]
    stayed: int


class _Stored(NamedTuple):
    """An entry, its size, and when it was used last (seconds since the epoch)."""

    shelf: Shelf
    folder: Path
    size_bytes: int
    used_s: float


_held: dict[Path, int] = {}
"""Descriptors of the entries that this process reads by their paths. They are locked until it ends."""


def cache_limit_bytes() -> int:
    """Say how large the cache may become: `$WARPGRADE_CACHE_LIMIT`, else 10 GiB. Raises UsageError."""
    text = os.environ.get(LIMIT_VARIABLE)
    return parse_size(text) if text else DEFAULT_LIMIT_BYTES


def parse_size(text: str) -> int:
    """Read a size in bytes. Raises UsageError where it is none, or zero.

    >>> parse_size("10 GiB") == 10 << 30, parse_size("1.5G"), parse_size("4096")
    (True, 1500000000, 4096)
    """
    match = _SIZE.fullmatch(text.strip())
    if match is not None:
        number, unit, binary = match.groups(default="")
        size_bytes = int(float(number) * (1024 if binary else 1000) ** _POWERS[unit.upper()])
        if size_bytes > 0:
            return size_bytes
    raise UsageError(f"{LIMIT_VARIABLE}: {text[:40]!r} is not a size", hint=f"like this: {LIMIT_VARIABLE}=10GiB")


def touch(folder: Path) -> None:
    """Note that an entry was used."""
    with contextlib.suppress(OSError):  # A cache that may only be read is one, too.
        os.utime(folder)


def hold(folder: Path) -> bool:
    """Keep an entry from being removed as long as this process lives; False where it is gone."""
    descriptor = _opened(folder)
    if descriptor is None:
        return False
    with contextlib.suppress(OSError):  # Where nothing can be locked, entries used lately stay all the same.
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:  # It is being removed.
            os.close(descriptor)
            return False
    if not _still_there(descriptor, folder):
        os.close(descriptor)
        return False
    touch(folder)
    before = _held.get(folder)
    _held[folder] = descriptor
    if before is not None:
        os.close(before)
    return True


def discard(folder: Path) -> bool:
    """Remove an entry, by one rename first, so that nobody ever sees half of one. Says whether it went."""
    doomed = folder.with_name(f"{_DOOMED}{secrets.token_hex(8)}")
    try:
        folder.rename(doomed)
    except OSError:
        return False
    shutil.rmtree(doomed, ignore_errors=True)
    return True


def make_room(cache: Path, limit_bytes: int, added_bytes: int) -> None:
    """Bound the cache after `added_bytes` came in: what was not used for longest goes first, and see `_trim`.

    Looking takes as long as there are entries, so after small ones it is done every five minutes.
    """
    stamp = cache / _STAMP
    with contextlib.suppress(OSError):
        if added_bytes < limit_bytes * _LARGE and _age_s(stamp) < _BETWEEN_TRIMS_S:
            return
    with contextlib.suppress(OSError), stamp.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Where another process is at it already, that will do.
        os.utime(stamp)
        _trim(cache, limit_bytes)


def usage(cache: Path, limit_bytes: int) -> CacheUsage:
    """Count what is there."""
    stored = list(_stored(cache))
    shelves = _by_shelf(stored)
    unfinished_bytes = sum(_size_bytes(leftover) for leftover in _leftovers(cache))
    total_bytes = sum(entry.size_bytes for entry in stored) + unfinished_bytes
    return CacheUsage(
        folder=str(cache),
        limit_bytes=limit_bytes,
        bytes=total_bytes,
        shelves=shelves,
        unfinished_bytes=unfinished_bytes,
    )


def clear(cache: Path) -> CacheCleared:
    """Remove every entry but those that a process reads just now, and what killed writers left."""
    _sweep(cache)
    stored = list(_stored(cache))
    gone = [entry for entry in stored if _discard_unless_held(entry.folder)]
    return CacheCleared(
        folder=str(cache),
        bytes=sum(entry.size_bytes for entry in gone),
        shelves=_by_shelf(gone),
        stayed=sum(entry.folder.exists() for entry in stored),
    )


def _trim(cache: Path, limit_bytes: int) -> None:
    """Remove what was not used for longest, of each class no more than keeps it at half of the room.

    A stranger can have any number of builds made, so builds that nobody came back for take no room from the others.
    """
    _sweep(cache)
    stored = sorted(_stored(cache), key=lambda entry: entry.used_s)
    total_bytes = sum(entry.size_bytes for entry in stored)
    for proven in (False, True):
        alike = [entry for entry in stored if _is_proven(entry) is proven]
        class_bytes = sum(entry.size_bytes for entry in alike)
        for entry in alike:
            if total_bytes <= limit_bytes or class_bytes <= limit_bytes // 2:
                break
            if time.time() - entry.used_s < RECENT_S:
                break
            # Another process may have used it since it was looked at.
            with contextlib.suppress(OSError):
                if _age_s(entry.folder) >= RECENT_S and _discard_unless_held(entry.folder):
                    total_bytes -= entry.size_bytes
                    class_bytes -= entry.size_bytes


def _is_proven(entry: _Stored) -> bool:
    """Say whether an entry is our own, or was used again after the grade that made it."""
    if entry.shelf not in {Shelf.BUILDS, Shelf.FAILURES}:
        return True
    try:
        return entry.used_s - (entry.folder / MANIFEST).stat().st_mtime >= RECENT_S
    except OSError:
        return False


def _sweep(cache: Path) -> None:
    """Remove what writers and removers left when they were killed."""
    for leftover in _leftovers(cache):
        with contextlib.suppress(OSError):
            if leftover.name.startswith(_DOOMED) or _age_s(leftover) >= _DRAFT_S:
                shutil.rmtree(leftover, ignore_errors=True)


def _discard_unless_held(folder: Path) -> bool:
    descriptor = _opened(folder)
    if descriptor is None:
        return False
    try:
        with contextlib.suppress(OSError):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return discard(folder)
    finally:
        os.close(descriptor)


def _opened(folder: Path) -> int | None:
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None


def _still_there(descriptor: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    except OSError:
        return False


def _by_shelf(stored: list[_Stored]) -> list[ShelfUsage]:
    return [
        ShelfUsage(kind=shelf, entries=len(sizes), bytes=sum(sizes))
        for shelf in Shelf
        for sizes in [[entry.size_bytes for entry in stored if entry.shelf is shelf]]
    ]


def _stored(cache: Path) -> Iterator[_Stored]:
    for shelf, folder in _folders(cache):
        if not folder.name.startswith("."):
            with contextlib.suppress(OSError):  # It went while we looked.
                yield _Stored(shelf, folder, _size_bytes(folder), folder.stat().st_mtime)


def _leftovers(cache: Path) -> Iterator[Path]:
    return (folder for _, folder in _folders(cache) if folder.name.startswith((DRAFT, _DOOMED)))


def _folders(cache: Path) -> Iterator[tuple[Shelf, Path]]:
    """Give every entry, finished or not; those of libraries lie below the first two digits of their keys."""
    for shelf in Shelf:
        parents = [cache / shelf] if shelf is Shelf.PREPARED else _subfolders(cache / shelf)
        yield from ((shelf, folder) for parent in parents for folder in _subfolders(parent))


def _subfolders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as found:
            return [Path(entry.path) for entry in found if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _size_bytes(folder: Path) -> int:
    """Say what a folder's files take on the disk, or will: some file systems allocate late."""
    size_bytes = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                facts = os.lstat(os.path.join(place, name))  # noqa: PTH118 - called for thousands of files
                size_bytes += max(facts.st_size, facts.st_blocks * 512)
    return size_bytes


def _age_s(path: Path) -> float:
    return time.time() - path.stat().st_mtime
