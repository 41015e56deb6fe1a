"""Build cache: entries by the hash of all inputs, a fallback folder, and cached measurements.

The builds live in the temporary folder until the process ends, so no grade builds an extension twice. The next start
removes the folder of a killed process (`sandbox/scratch_folders.py`).

Only the judge's side writes entries, and only output of compilers that ran without the submission's Python. An entry is
a folder with the library and a manifest. One rename publishes the entry, so a killed writer leaves no partial entry.
Every read verifies the hash, and a damaged entry is rebuilt. `eviction` bounds the total size.
"""

import contextlib
import errno
import fcntl
import hashlib
import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from evaluator.cache.eviction import DRAFT, MANIFEST, CacheNamespace, cache_limit_bytes, discard, hold, make_room, touch
from evaluator.paths import cache_folder
from evaluator.records import Record, Sha256
from evaluator.sandbox.scratch_folders import Scratch

_BEFORE_US = frozenset({errno.EEXIST, errno.ENOTEMPTY})


class Trouble(NamedTuple):
    """Unwritable folder and the reason."""

    folder: Path
    why: str


class _State:
    """Write failures of this process, and the temporary folder."""

    lock = threading.Lock()
    trouble: Trouble | None = None
    scratch: Scratch | None = None


def took_note(folder: Path, error: OSError) -> bool:
    """Record a write failure of the cache at `folder`; return False if another process created the entry first."""
    if error.errno in _BEFORE_US:
        return False
    with _State.lock:
        _State.trouble = Trouble(folder, error.strerror or str(error))
    return True


def trouble(folder: Path) -> Trouble | None:
    """Return this process's write failure for the cache at `folder`; None without a failure."""
    failure = _State.trouble
    return failure if failure is not None and failure.folder == folder else None


def fallback_folder() -> Path | None:
    """Return this process's temporary folder, created if necessary; None if creation fails."""
    with _State.lock:
        if _State.scratch is None:
            try:
                _State.scratch = Scratch("build")
                _State.scratch.path.chmod(0o711)  # Sandboxed compilers read headers there as another user.
            except OSError:
                return None
        return _State.scratch.path


def spilled() -> Path | None:
    """Return the temporary folder; None before creation."""
    return None if _State.scratch is None else _State.scratch.path


def remove() -> None:
    """Remove the temporary folder."""
    with _State.lock, contextlib.suppress(OSError):
        if _State.scratch is not None:
            _State.scratch.close()
        _State.scratch, _State.trouble = None, None


LIBRARY = "library.so"
_SUBMISSION_BYTES = 256 << 20
"""Limit for the builds of one submission: four libraries of maximal size, or dozens of usual ones."""
_log = logging.getLogger("warpgrade")


class LibraryManifest(Record, frozen=True):
    """Description of an entry's library."""

    key: Sha256
    library_sha256: Sha256
    library_bytes: int
    log: str
    wall_s: float


class CacheEntry(Record, frozen=True):
    """Library from the cache, with its manifest."""

    library: bytes
    manifest: LibraryManifest


class BuildCache:
    """Cached libraries under one folder. Several processes may share the folder."""

    def __init__(
        self, folder: Path, *, namespace: CacheNamespace = CacheNamespace.BUILDS, allowed_bytes: int | None = None
    ) -> None:
        """Store entries below `folder`, created with the first entry; `allowed_bytes` limits all added libraries.

        Raises UsageError if the user's size limit for the whole folder is invalid.
        """
        self._root = folder
        self._folder = folder / namespace
        self._limit_bytes = cache_limit_bytes()
        self._allowed_bytes = allowed_bytes

    def of_one_submission(self) -> "BuildCache":
        """Cache view for one submission, with a limit on added bytes."""
        return BuildCache(self._root, allowed_bytes=_SUBMISSION_BYTES)

    @property
    def parts(self) -> "BuildCache":
        """Cache of Warpgrade's own libraries, counted separately from submissions' libraries."""
        return BuildCache(self._root, namespace=CacheNamespace.PARTS)

    @property
    def failures(self) -> "BuildCache":
        """Cache of failed builds."""
        return BuildCache(self._root, namespace=CacheNamespace.FAILURES)

    @property
    def machine_code(self) -> "BuildCache":
        """Cache of instruction counts of submissions' libraries."""
        return BuildCache(self._root, namespace=CacheNamespace.MACHINE_CODE)

    def get(self, key: str) -> CacheEntry | None:
        """Read an entry. A damaged entry is removed and counts as missing."""
        return next(filter(None, (self._read(folder, key) for folder in self._entries(key))), None)

    def _read(self, folder: Path, key: str) -> CacheEntry | None:
        if not _is_there(folder):
            return None
        try:
            manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=LibraryManifest)
            library = (folder / LIBRARY).read_bytes()
        except (OSError, msgspec.DecodeError):  # Partial entry: its folder would block a new entry.
            discard(folder)
            return None
        if manifest.key != key or hashlib.sha256(library).hexdigest() != manifest.library_sha256:
            discard(folder)
            return None
        touch(folder)
        return CacheEntry(library=library, manifest=manifest)

    def folder(self, key: str) -> Path | None:
        """Return the folder with an entry's `library.so`, for libraries too large to read; None if missing.

        Verifies only the size. The entry stays locked until this process ends.
        """
        return next(filter(None, (self._held(folder, key) for folder in self._entries(key))), None)

    def _held(self, folder: Path, key: str) -> Path | None:
        if not _is_there(folder):
            return None
        try:
            manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=LibraryManifest)
            size_bytes = (folder / LIBRARY).stat().st_size
        except (OSError, msgspec.DecodeError):
            discard(folder)
            return None
        if (manifest.key, manifest.library_bytes) != (key, size_bytes):
            discard(folder)
            return None
        return folder if hold(folder) else None

    @contextlib.contextmanager
    def one_writer(self) -> Iterator[None]:
        """Hold the cache's lock during the block. A folder that cannot be written has no lock."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                lock = stack.enter_context((self._folder / ".lock").open("w"))
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def discard(self, key: str) -> None:
        """Remove an entry."""
        for folder in self._entries(key):
            if _is_there(folder):
                discard(folder)

    def put(self, key: str, library: bytes, *, log: str, wall_s: float) -> None:
        """Store a library; on a full or read-only disk, store the library for this process only (`spill`).

        A library beyond the submission's remaining limit is not stored, and a repeated request builds the library
        again.
        """
        if self._allowed_bytes is not None:
            if len(library) > self._allowed_bytes:
                _log.warning("%s bytes are not kept: more than one submission may add to the cache", len(library))
                return
            self._allowed_bytes -= len(library)
        manifest = LibraryManifest(
            key=key,
            library_sha256=hashlib.sha256(library).hexdigest(),
            library_bytes=len(library),
            log=log,
            wall_s=wall_s,
        )
        try:
            _write(self._entry(key), library, manifest)
        except OSError as error:
            if took_note(self._root, error):
                self._spill(key, library, manifest)
            return  # Otherwise another process was first. The library in memory is valid.
        make_room(self._root, self._limit_bytes, len(library))

    def _spill(self, key: str, library: bytes, manifest: LibraryManifest) -> None:
        folder = fallback_folder()
        with contextlib.suppress(OSError):  # Without space nothing is stored. The library in memory is valid.
            if folder is not None:
                _write(self._below(folder, key), library, manifest)

    def _entries(self, key: str) -> list[Path]:
        """List the possible folders of an entry: in the cache, and in this process's spill folder."""
        folder = spilled()
        return [self._entry(key), *([] if folder is None else [self._below(folder, key)])]

    def _below(self, folder: Path, key: str) -> Path:
        return folder / self._folder.relative_to(self._root) / key[:2] / key

    def _entry(self, key: str) -> Path:
        return self._folder / key[:2] / key


def _is_there(folder: Path) -> bool:
    try:
        return folder.exists()
    except OSError:  # No permission to search the cache folder.
        return False


def _write(target: Path, library: bytes, manifest: LibraryManifest) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=DRAFT, ignore_cleanup_errors=True) as temporary:
        draft = Path(temporary) / "entry"
        draft.mkdir()
        (draft / LIBRARY).write_bytes(library)
        (draft / MANIFEST).write_bytes(msgspec.json.encode(manifest))
        draft.rename(target)


R = TypeVar("R", bound=Record)
N = TypeVar("N")


def measured_once(parts: Sequence[object], form: type[R], make: Callable[[], R | N]) -> R | N:
    """Return the cached record for `parts`, or make and store the record. Only a `form` is stored, no other result.

    `parts` must name all inputs of the measurement. The schema of `form` is part of the key, so a changed record class
    invalidates old entries. Only the judge writes to the cache.
    """
    if (cached := look_up(parts, form)) is not None:
        return cached
    started = time.monotonic()
    result = make()
    if isinstance(result, form):
        # No effect if another process stored a record first; both are valid.
        _cache().put(_key(parts, form), msgspec.json.encode(result), log="", wall_s=time.monotonic() - started)
    return result


def forget(parts: Sequence[object], form: type[Record]) -> None:
    """Remove the cached record for `parts`, for a measurement that no longer holds."""
    _cache().discard(_key(parts, form))


def look_up(parts: Sequence[object], form: type[R]) -> R | None:
    """Return the cached record for `parts`; None if missing."""
    if (entry := _cache().get(_key(parts, form))) is None:
        return None
    try:
        return msgspec.json.decode(entry.library, type=form)
    except msgspec.DecodeError:
        return None


def _key(parts: Sequence[object], form: type[Record]) -> str:
    # The schema includes nested records: a changed nested record changes the key.
    return hashlib.sha256(msgspec.json.encode([msgspec.json.schema(form), *parts], enc_hook=str)).hexdigest()


def _cache() -> BuildCache:
    return BuildCache(cache_folder(), namespace=CacheNamespace.MEASURED)
