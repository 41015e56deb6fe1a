"""Finished libraries, kept under the hash of all that went into them.

Only the judge's side writes here, and only what came out of a compiler that ran without the submission's Python. An
entry is a folder with the library and a manifest; it appears by one rename, so a killed writer leaves no half of one,
and it is verified on every read, so a damaged one is built anew.
"""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import msgspec

from evaluator.records import Record, Sha256

LIBRARY = "library.so"
_MANIFEST = "manifest.json"


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

    def __init__(self, folder: Path) -> None:
        """Keep entries below `folder`, which is made with the first of them."""
        self._folder = folder / "builds"

    def get(self, key: str) -> Entry | None:
        """Read an entry; a damaged one is removed and counts as absent."""
        folder = self._entry(key)
        try:
            manifest = msgspec.json.decode((folder / _MANIFEST).read_bytes(), type=Manifest)
            library = (folder / LIBRARY).read_bytes()
        except (OSError, msgspec.DecodeError):  # Absent, or half of it is, which would keep a new one from its place.
            shutil.rmtree(folder, ignore_errors=True)
            return None
        if manifest.key != key or hashlib.sha256(library).hexdigest() != manifest.library_sha256:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        return Entry(library=library, manifest=manifest)

    def folder(self, key: str) -> Path | None:
        """Say in which folder an entry's `library.so` lies, for one that is too large to be read; None: there is none.

        Only its size is verified.
        """
        folder = self._entry(key)
        try:
            manifest = msgspec.json.decode((folder / _MANIFEST).read_bytes(), type=Manifest)
            size_bytes = (folder / LIBRARY).stat().st_size
        except (OSError, msgspec.DecodeError):
            return None
        return folder if (manifest.key, manifest.library_bytes) == (key, size_bytes) else None

    def put(self, key: str, library: bytes, *, log: str, wall_s: float) -> None:
        """Keep a library. Where the disk is full or read-only nothing is kept, and nothing is said: it is a cache."""
        manifest = Manifest(
            key=key,
            library_sha256=hashlib.sha256(library).hexdigest(),
            library_bytes=len(library),
            log=log,
            wall_s=wall_s,
        )
        target = self._entry(key)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-", ignore_cleanup_errors=True) as made:
                draft = Path(made) / "entry"
                draft.mkdir()
                (draft / LIBRARY).write_bytes(library)
                (draft / _MANIFEST).write_bytes(msgspec.json.encode(manifest))
                draft.rename(target)
        except OSError:
            # Another process was first, or there is no room. Either way the library at hand is good.
            return

    def _entry(self, key: str) -> Path:
        return self._folder / key[:2] / key
