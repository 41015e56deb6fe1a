"""Cache of finished libraries, keyed by the hash of all build inputs.

Only the judge's side writes entries, and only output of compilers that ran without the submission's Python. An entry is
a folder with the library and a manifest. One rename publishes the entry, so a killed writer leaves no partial entry.
Every read verifies the hash, and a damaged entry is rebuilt. `eviction` bounds the total size.
"""

import contextlib
import fcntl
import hashlib
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from evaluator.cache.eviction import DRAFT, MANIFEST, CacheNamespace, cache_limit_bytes, discard, hold, make_room, touch
from evaluator.cache.fallback_folder import fallback_folder, spilled, took_note
from evaluator.records import Record, Sha256

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
