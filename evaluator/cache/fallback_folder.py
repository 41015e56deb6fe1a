"""Temporary storage for builds when the cache folder is full, read-only or missing.

The builds live in the temporary folder until the process ends, so no grade builds an extension twice. The next start
removes the folder of a killed process (`sandbox/filesystem/scratch_folders.py`).
"""

import contextlib
import errno
import threading
from pathlib import Path
from typing import NamedTuple

from evaluator.sandbox.filesystem.scratch_folders import Scratch

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
