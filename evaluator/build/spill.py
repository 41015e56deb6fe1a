"""Where builds go that the cache folder does not take: a full disk, a folder that may only be read, no folder at all.

They lie in the temporary folder for as long as this process lives, so that no grade builds anything twice. One that
is killed leaves them to the next start, which removes them (`isolation/scratch.py`).
"""

import contextlib
import errno
import threading
from pathlib import Path
from typing import NamedTuple

from evaluator.isolation.scratch import Scratch

_BEFORE_US = frozenset({errno.EEXIST, errno.ENOTEMPTY})


class Trouble(NamedTuple):
    """Which folder could not be written to, and why."""

    folder: Path
    why: str


class _State:
    """What this process found of its cache."""

    lock = threading.Lock()
    trouble: Trouble | None = None
    scratch: Scratch | None = None


def took_note(folder: Path, error: OSError) -> bool:
    """Say whether `error` means that the cache at `folder` takes nothing; another process may also have been first."""
    if error.errno in _BEFORE_US:
        return False
    with _State.lock:
        _State.trouble = Trouble(folder, error.strerror or str(error))
    return True


def trouble(folder: Path) -> Trouble | None:
    """Give what this process met when it wrote to the cache at `folder`, if it was no success."""
    found = _State.trouble
    return found if found is not None and found.folder == folder else None


def spill_folder() -> Path | None:
    """Make the folder for the time of this process; None where the temporary folder takes nothing either."""
    with _State.lock:
        if _State.scratch is None:
            try:
                _State.scratch = Scratch("build")
                _State.scratch.path.chmod(0o711)  # A compiler behind the walls reads headers there, as another user.
            except OSError:
                return None
        return _State.scratch.path


def spilled() -> Path | None:
    """Give that folder, if there is one."""
    return None if _State.scratch is None else _State.scratch.path


def remove() -> None:
    """Remove it."""
    with _State.lock, contextlib.suppress(OSError):
        if _State.scratch is not None:
            _State.scratch.close()
        _State.scratch, _State.trouble = None, None
