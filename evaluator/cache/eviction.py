"""Size limit of the cache: usage accounting, eviction order, and safe removal of entries.

Processes share the cache without coordination. An entry is therefore renamed before deletion, entries in use by path
are locked (`hold`), and recently used entries stay. Removal is best effort: a failed removal fails no grade.
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
"""File in every entry, written once when the entry is created."""
DRAFT = ".new-"
"""Name prefix of entries still being written."""
LIMIT_VARIABLE = "WARPGRADE_CACHE_LIMIT"
DEFAULT_LIMIT_BYTES = 10 << 30
RECENT_S = 900.0
"""Entries used within this period are never evicted. The period exceeds the compile time limit of an extension."""
_DOOMED = ".old-"
_DRAFT_S = 3600.0
"""Age of an abandoned draft: writing an entry takes seconds."""
_STAMP = ".trimmed"
_BETWEEN_TRIMS_S = 300.0
_LARGE = 0.01
"""Share of the limit above which a new entry triggers an immediate check."""
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*(?:([KMGT])(i?)B?|B)?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


class CacheNamespace(StrEnum):
    """Kinds of entries, with their folder names."""

    BUILDS = "builds"  # submissions' extensions
    FAILURES = "failures"  # compiler output of failed builds
    MACHINE_CODE = "sass"  # instruction counts of submissions' libraries
    PARTS = "parts"  # Warpgrade's native code: allocators, kernels, the emulator's runtime and its precompiled header
    PREPARED = "prepared"  # shared files of split builds
    MEASURED = "measured"  # measurements of GPUs and problems, and baselines


class NamespaceUsage(Record, frozen=True):
    """Size of one kind of entries."""

    kind: CacheNamespace
    entries: int
    bytes: int


class CacheUsage(Record, frozen=True):
    """Contents of the cache. `unfinished_bytes` counts drafts of running and killed writers."""

    folder: str
    limit_bytes: int
    bytes: int
    shelves: list[NamespaceUsage]
    unfinished_bytes: int


class CacheCleared(Record, frozen=True):
    """Removed entries by kind, and the number of remaining entries: in use, or without permission to remove."""

    folder: str
    bytes: int
    shelves: list[NamespaceUsage]
    stayed: int


class _Stored(NamedTuple):
    """Entry with its size and time of last use (seconds since the epoch)."""

    namespace: CacheNamespace
    folder: Path
    size_bytes: int
    used_s: float


_held: dict[Path, int] = {}
"""Descriptors of entries that this process reads by path, locked until the process ends."""


def cache_limit_bytes() -> int:
    """Return the cache's size limit: `$WARPGRADE_CACHE_LIMIT`, else 10 GiB. Raises UsageError."""
    text = os.environ.get(LIMIT_VARIABLE)
    return parse_size(text) if text else DEFAULT_LIMIT_BYTES


def parse_size(text: str) -> int:
    """Parse a size in bytes. Raises UsageError for invalid sizes and zero.

    >>> parse_size("10 GiB") == 10 << 30, parse_size("1.5G"), parse_size("4096")
    (True, 1500000000, 4096)
    """
    match = _SIZE.fullmatch(text.strip())
    if match is not None:
        number, unit, binary = match.groups(default="")
        size_bytes = int(float(number) * (1024 if binary else 1000) ** _POWERS[unit.upper()])
        if size_bytes > 0:
            return size_bytes
    raise UsageError(f"{LIMIT_VARIABLE}: {text[:40]!r} is not a size", hint=f"example: {LIMIT_VARIABLE}=10GiB")


def touch(folder: Path) -> None:
    """Record a use of an entry."""
    with contextlib.suppress(OSError):  # A read-only cache is valid, too.
        os.utime(folder)


def hold(folder: Path) -> bool:
    """Protect an entry from removal until this process ends; return False if the entry is gone."""
    descriptor = _opened(folder)
    if descriptor is None:
        return False
    with contextlib.suppress(OSError):  # Without file locks, recently used entries are still safe.
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:  # Another process is removing the entry.
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
    """Remove an entry and return whether the removal succeeded. A rename comes first: readers see no partial entry."""
    doomed = folder.with_name(f"{_DOOMED}{secrets.token_hex(8)}")
    try:
        folder.rename(doomed)
    except OSError:
        return False
    shutil.rmtree(doomed, ignore_errors=True)
    return True


def make_room(cache: Path, limit_bytes: int, added_bytes: int) -> None:
    """Enforce the size limit after adding `added_bytes`: evict the least recently used entries first (see `_trim`).

    The check takes time proportional to the number of entries, so small additions trigger at most one check in five
    minutes.
    """
    stamp = cache / _STAMP
    with contextlib.suppress(OSError):
        if added_bytes < limit_bytes * _LARGE and _age_s(stamp) < _BETWEEN_TRIMS_S:
            return
    with contextlib.suppress(OSError), stamp.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # If another process holds the lock, its check suffices.
        os.utime(stamp)
        _trim(cache, limit_bytes)


def usage(cache: Path, limit_bytes: int) -> CacheUsage:
    """Measure the cache."""
    stored = list(_stored(cache))
    shelves = _by_namespace(stored)
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
    """Remove all entries except entries in use, and the drafts of killed writers."""
    _sweep(cache)
    stored = list(_stored(cache))
    gone = [entry for entry in stored if _discard_unless_held(entry.folder)]
    return CacheCleared(
        folder=str(cache),
        bytes=sum(entry.size_bytes for entry in gone),
        shelves=_by_namespace(gone),
        stayed=sum(entry.folder.exists() for entry in stored),
    )


def _trim(cache: Path, limit_bytes: int) -> None:
    """Evict least recently used entries, while the entry's class uses more than half of the limit.

    Untrusted users can trigger any number of builds, so builds without a second use displace no other entries.
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
            # Checked again: another process may have used the entry since the listing.
            with contextlib.suppress(OSError):
                if _age_s(entry.folder) >= RECENT_S and _discard_unless_held(entry.folder):
                    total_bytes -= entry.size_bytes
                    class_bytes -= entry.size_bytes


_OF_SUBMISSIONS = frozenset((CacheNamespace.BUILDS, CacheNamespace.FAILURES, CacheNamespace.MACHINE_CODE))


def _is_proven(entry: _Stored) -> bool:
    """Return whether an entry is Warpgrade's own, or was used again after the grade that created it."""
    if entry.namespace not in _OF_SUBMISSIONS:
        return True
    try:
        return entry.used_s - (entry.folder / MANIFEST).stat().st_mtime >= RECENT_S
    except OSError:
        return False


def _sweep(cache: Path) -> None:
    """Remove the remains of killed writers and removers."""
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


def _by_namespace(stored: list[_Stored]) -> list[NamespaceUsage]:
    return [
        NamespaceUsage(kind=namespace, entries=len(sizes), bytes=sum(sizes))
        for namespace in CacheNamespace
        for sizes in [[entry.size_bytes for entry in stored if entry.namespace is namespace]]
    ]


def _stored(cache: Path) -> Iterator[_Stored]:
    for namespace, folder in _folders(cache):
        if not folder.name.startswith("."):
            with contextlib.suppress(OSError):  # Removed since the listing.
                yield _Stored(namespace, folder, _size_bytes(folder), folder.stat().st_mtime)


def _leftovers(cache: Path) -> Iterator[Path]:
    return (folder for _, folder in _folders(cache) if folder.name.startswith((DRAFT, _DOOMED)))


def _folders(cache: Path) -> Iterator[tuple[CacheNamespace, Path]]:
    """Yield all entry folders, finished or not. Library entries lie below the first two digits of their keys."""
    for namespace in CacheNamespace:
        parents = [cache / namespace] if namespace is CacheNamespace.PREPARED else _subfolders(cache / namespace)
        yield from ((namespace, folder) for parent in parents for folder in _subfolders(parent))


def _subfolders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _size_bytes(folder: Path) -> int:
    """Return the disk usage of a folder's files, at least their length: some file systems allocate late."""
    size_bytes = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                facts = os.lstat(os.path.join(directory, name))  # noqa: PTH118 - called for thousands of files
                size_bytes += max(facts.st_size, facts.st_blocks * 512)
    return size_bytes


def _age_s(path: Path) -> float:
    return time.time() - path.stat().st_mtime
