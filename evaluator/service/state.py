"""State folder of the service: place, mode and lock."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from evaluator.errors import InfraError, UsageError
from evaluator.sandbox.filesystem.visible_files import refuse_readable

_LOCK = "lock"


def default_state() -> Path:
    """Return the default state folder: in `$XDG_STATE_HOME`, else in `~/.local/state`."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "warpgrade" / "service"


def default_tokens(state: Path) -> Path:
    """Return the path of the token file in a state folder."""
    return state / "tokens"


@contextlib.contextmanager
def locked(state: Path) -> Iterator[None]:
    """Create the state folder, and hold the folder's lock. Raises UsageError if another service holds the lock.

    Raises UsageError also for a folder that submissions can read.
    """
    refuse_readable(state, "the state folder")
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        facts = state.stat()
        lock = os.open(state / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise InfraError(f"cannot use the state folder {state}: {error.strerror}", hint="choose --state DIR") from None
    try:
        if facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
            hint = f"chmod 700 {state}, as its owner"
            raise UsageError(f"other users can reach the state folder {state}", hint=hint)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another service uses {state}", hint="choose --state DIR") from None
        except OSError as error:
            hint = "choose a --state DIR on a local disk"
            raise InfraError(f"cannot lock the state folder {state}: {error.strerror}", hint=hint) from None
        yield
    finally:
        os.close(lock)
