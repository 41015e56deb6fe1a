"""Bearer tokens of clients: 256 random bits, stored as SHA-256 hashes in a file that only the owner can read.

A line of the file is `sha256:HASH CLIENT`. A client may have several tokens, to replace tokens without a pause. A
token has too many bits to be guessed from the hash: the hash needs neither salt nor stretching.

A change writes a new file and renames the file into place, under a lock of the folder: a full disk or a power cut
leaves the old file, and of two concurrent changes neither is lost.
"""

import contextlib
import fcntl
import hashlib
import hmac
import os
import re
import secrets
import stat
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from evaluator.errors import InfraError, UsageError
from evaluator.sandbox.visible_files import refuse_readable
from evaluator.signatures.keys import replace_file

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


_PREFIX = "wg_"
_CLIENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LINE = re.compile(rf"sha256:([0-9a-f]{{64}}) ({_CLIENT.pattern})")
_MOST_BYTES = 1 << 20
_LOCK_S = 10.0
_LOOK_S = 0.02
_HINT = "make a token: warpgrade token CLIENT"


class _Entry(NamedTuple):
    digest: str
    client: str


class _Stamp(NamedTuple):
    """Identity of the read file's content, mode and owner: every change of either changes `ctime_ns`."""

    inode: int
    size_bytes: int
    ctime_ns: int


def add_token(path: Path, client: str) -> str:
    """Create a token for `client`, add the hash to the file, and return the token. The token itself is stored nowhere.

    Raises:
        UsageError: the client's name is invalid, or the file is not writable or not private.
    """
    _check_client(client)
    token = _PREFIX + secrets.token_urlsafe(32)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(path.parent):
            entries = _read(path)[1] if os.path.lexists(path) else []
            _write(path, [*entries, _Entry(_digest(token), client)])
    except OSError as error:
        raise UsageError(f"cannot write the token file {path}: {error.strerror}") from error
    return token


def revoke_tokens(path: Path, client: str) -> int:
    """Remove all tokens of `client` from the file; return the number of tokens. A running service notices at once.

    Raises:
        UsageError: the client has no token, or the file cannot be read or written.
    """
    _check_client(client)
    try:
        with _locked(path.parent):
            _, entries = _read(path)
            remaining = [entry for entry in entries if entry.client != client]
            if len(remaining) == len(entries):
                raise UsageError(f"{client} has no token in {path}")
            _write(path, remaining)
    except OSError as error:
        raise UsageError(f"cannot write the token file {path}: {error.strerror}") from error
    return len(entries) - len(remaining)


def tokens_by_client(path: Path) -> Counter[str]:
    """Return the number of tokens of each client. Raises UsageError if the file cannot be read."""
    return Counter(entry.client for entry in _read(path)[1])


class Tokens:
    """Tokens in a file. Thread-safe. A changed file is read again: a revoked token fails at once."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises UsageError if the file is missing, empty, invalid, or open to other users."""
        self._path = path
        self._changing = threading.Lock()
        self._stamp, self._entries = _read(path)
        if not self._entries:
            raise UsageError(f"the token file {path} has no token", hint=_HINT)

    def client_of(self, token: str) -> str | None:
        """Return the client with the given token, or None. The time depends on no secret."""
        token_digest = _digest(token)
        match = None
        for digest, client in self._current():  # Compares with every hash, also after a match.
            if hmac.compare_digest(digest, token_digest):
                match = client
        return match

    def _current(self) -> list[_Entry]:
        """Return the entries of the file. An unreadable file has no entries: every token is refused."""
        with self._changing:
            try:
                if _stamp(self._path.stat()) != self._stamp:
                    self._stamp, self._entries = _read(self._path)
            except (OSError, UsageError):
                self._stamp, self._entries = _Stamp(0, 0, 0), []
            return self._entries


def _read(path: Path) -> tuple[_Stamp, list[_Entry]]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            facts = os.fstat(descriptor)  # The opened file is checked: a replaced path has no effect.
            _refuse_public(facts, path)
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read the token file {path}: {error.strerror}", hint=_HINT) from error
    if len(content) > _MOST_BYTES:
        raise UsageError(f"the token file {path} is larger than {_MOST_BYTES >> 20} MiB")
    entries = []
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), start=1):
        match = _LINE.fullmatch(line)
        if match is None:
            hint = "remove the line; `warpgrade token CLIENT` writes valid lines"
            raise UsageError(f"line {number} of the token file {path} is not `sha256:HASH CLIENT`", hint=hint)
        entries.append(_Entry(match[1], match[2]))
    return _stamp(facts), entries


def _write(path: Path, entries: list[_Entry]) -> None:
    """Replace the file. Raises OSError, and UsageError for a link: the rename would replace the link alone."""
    if path.is_symlink():
        raise UsageError(f"the token file {path} is a link", hint="name the file itself with --tokens")
    replace_file(path, "".join(f"sha256:{entry.digest} {entry.client}\n" for entry in entries), 0o600)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder. At the exit, the disk has the folder's entries."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(descriptor, folder)
        yield
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    """Lock a folder. Raises UsageError after a while: any user who can read the folder may hold the lock."""
    until_s = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until_s:
                hint = "end the other program, or choose a private folder with --tokens"
                raise UsageError(f"another program locks the folder {folder}", hint=hint) from None
            time.sleep(_LOOK_S)
        else:
            return


def _refuse_public(facts: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise UsageError(f"the token file {path} is not a regular file")
    if facts.st_uid != os.geteuid():
        raise UsageError(f"the token file {path} belongs to another user")
    if facts.st_mode & 0o077:
        raise UsageError(f"other users can reach the token file {path}", hint=f"chmod 600 {path}")


def _stamp(facts: os.stat_result) -> _Stamp:
    return _Stamp(facts.st_ino, facts.st_size, facts.st_ctime_ns)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _check_client(client: str) -> None:
    if _CLIENT.fullmatch(client) is None:
        hint = "use at most 64 letters, digits, dots, - and _: alice, trainer-1"
        raise UsageError(f"{client[:80]!r} is not a valid name of a client", hint=hint)
