"""Finished libraries, kept under the hash of all that went into them.

Only the judge's side writes here, and only what came out of a compiler that ran without the submission's Python. An
entry is a folder with the library and a manifest; it appears by one rename, so a killed writer leaves no half of one,
and it is verified on every read, so a damaged one is built anew. `cache_room` bounds how much there is.
"""

import contextlib
import hashlib
import logging
import os
import tempfile
from pathlib import Path

import msgspec

from evaluator.build import spill
from evaluator.build.cache_room import DRAFT, MANIFEST, Shelf, cache_limit_bytes, discard, hold, make_room, touch
from evaluator.records import Record, Sha256

LIBRARY = "library.so"
_SUBMISSION_BYTES = 256 << 20
"""What the builds of one submission may add: four of the largest kind, dozens of the usual one."""
_log = logging.getLogger("warpgrade")


class Manifest(Record, frozen=True):
    """What an entry says about its library."""

    key: Sha256
    library_sha256: Sha256
    library_bytes: int
    log: str
    wall_s: float


class Entry(Record, frozen=True):
    """A library from the cache, with its manifest."""

    library: bytes
    manifest: Manifest


def cache_folder() -> Path:
    """Say where builds are kept: `$WARPGRADE_CACHE`, else `warpgrade` in the user's cache folder."""
    if chosen := os.environ.get("WARPGRADE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "warpgrade"


class BuildCache:
    """The libraries under one folder. Processes may share it."""

    def __init__(self, folder: Path, *, shelf: Shelf = Shelf.BUILDS, allowed_bytes: int | None = None) -> None:
        """Keep entries below `folder`, which is made with the first of them; `allowed_bytes` is all that may be added.

        Raises UsageError where the limit that the user chose for the whole folder is no size.
        """
        self._root = folder
        self._folder = folder / shelf
        self._limit_bytes = cache_limit_bytes()
        self._allowed_bytes = allowed_bytes

    def of_one_submission(self) -> "BuildCache":
        """The same libraries, for a submission that may not fill the cache with its own."""
        return BuildCache(self._root, allowed_bytes=_SUBMISSION_BYTES)

    @property
    def parts(self) -> "BuildCache":
        """The libraries that are our own, not a submission's. They are counted on their own."""
        return BuildCache(self._root, shelf=Shelf.PARTS)

    @property
    def failures(self) -> "BuildCache":
        """What is known of builds that failed."""
        return BuildCache(self._root, shelf=Shelf.FAILURES)

    def get(self, key: str) -> Entry | None:
        """Read an entry; a damaged one is removed and counts as absent."""
        return next(filter(None, (self._read(folder, key) for folder in self._entries(key))), None)

    def _read(self, folder: Path, key: str) -> Entry | None:
        if not _is_there(folder):
            return None
        try:
            manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
            library = (folder / LIBRARY).read_bytes()
        except (OSError, msgspec.DecodeError):  # Half of it is there, which would keep a new one from its place.
            discard(folder)
            return None
        if manifest.key != key or hashlib.sha256(library).hexdigest() != manifest.library_sha256:
            discard(folder)
            return None
        touch(folder)
        return Entry(library=library, manifest=manifest)

    def folder(self, key: str) -> Path | None:
        """Say in which folder an entry's `library.so` lies, for one that is too large to be read; None: there is none.

        Only its size is verified. It stays there as long as this process lives.
        """
        return next(filter(None, (self._held(folder, key) for folder in self._entries(key))), None)

    def _held(self, folder: Path, key: str) -> Path | None:
        if not _is_there(folder):
            return None
        try:
            manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
            size_bytes = (folder / LIBRARY).stat().st_size
        except (OSError, msgspec.DecodeError):
            discard(folder)
            return None
        if (manifest.key, manifest.library_bytes) != (key, size_bytes):
            discard(folder)
            return None
        return folder if hold(folder) else None

    def put(self, key: str, library: bytes, *, log: str, wall_s: float) -> None:
        """Keep a library; where the disk is full or read-only, for the time of this process (`spill`).

        One that is more than a submission may still add is not kept: it is built again when it is asked for again.
        """
        if self._allowed_bytes is not None:
            if len(library) > self._allowed_bytes:
                _log.warning("%s bytes are not kept: more than one submission may add to the cache", len(library))
                return
            self._allowed_bytes -= len(library)
        manifest = Manifest(
            key=key,
            library_sha256=hashlib.sha256(library).hexdigest(),
            library_bytes=len(library),
            log=log,
            wall_s=wall_s,
        )
        try:
            _write(self._entry(key), library, manifest)
        except OSError as error:
            if spill.took_note(self._root, error):
                self._spill(key, library, manifest)
            return  # Else another process was first. The library at hand is good.
        make_room(self._root, self._limit_bytes, len(library))

    def _spill(self, key: str, library: bytes, manifest: Manifest) -> None:
        folder = spill.spill_folder()
        with contextlib.suppress(OSError):  # Then nothing is kept; the library at hand is good.
            if folder is not None:
                _write(self._below(folder, key), library, manifest)

    def _entries(self, key: str) -> list[Path]:
        """List where an entry may lie: in the cache, and where this process keeps what the cache did not take."""
        spilled = spill.spilled()
        return [self._entry(key), *([] if spilled is None else [self._below(spilled, key)])]

    def _below(self, folder: Path, key: str) -> Path:
        return folder / self._folder.relative_to(self._root) / key[:2] / key

    def _entry(self, key: str) -> Path:
        return self._folder / key[:2] / key


def _is_there(folder: Path) -> bool:
    try:
        return folder.exists()
    except OSError:  # The cache folder may not be looked into.
        return False


def _write(target: Path, library: bytes, manifest: Manifest) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=DRAFT, ignore_cleanup_errors=True) as made:
        draft = Path(made) / "entry"
        draft.mkdir()
        (draft / LIBRARY).write_bytes(library)
        (draft / MANIFEST).write_bytes(msgspec.json.encode(manifest))
        draft.rename(target)
