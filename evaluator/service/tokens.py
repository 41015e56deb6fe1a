"""Bearer tokens of clients: 256 random bits, stored as SHA-256 hashes in a file readable only by its owner.

A line of the file is `sha256:HASH CLIENT`. A client may have several tokens, so that tokens can be replaced without a
pause. A token has too many bits to be guessed from its hash, so the hash needs neither salt nor stretching.
"""

import hashlib
import hmac
import os
import re
import secrets
import stat
import threading
from pathlib import Path
from typing import NamedTuple

from evaluator.errors import UsageError
from evaluator.files.safe_open import read_named_regular

_PREFIX = "wg_"
_CLIENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LINE = re.compile(rf"sha256:([0-9a-f]{{64}}) ({_CLIENT.pattern})")
_MOST_BYTES = 1 << 20
_HINT = "make a token: warpgrade token CLIENT"


class _Entry(NamedTuple):
    digest: str
    client: str


class _Stamp(NamedTuple):
    """Identity of the read file's content."""

    inode: int
    size_bytes: int
    mtime_ns: int


def add_token(path: Path, client: str) -> str:
    """Create a token for `client`, append its hash to the file, and return the token, which is stored nowhere.

    Raises:
        UsageError: the client's name is invalid, or the file is not writable or not private.
    """
    _check_client(client)
    token = _PREFIX + secrets.token_urlsafe(32)
    line = f"sha256:{_digest(token)} {client}\n"
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, flags, 0o600)
        with os.fdopen(descriptor, "ab", buffering=0) as file:
            _refuse_public(os.fstat(descriptor), path)
            file.write(line.encode())  # One write in append mode: two commands at a time mix no lines.
            os.fsync(descriptor)
    except OSError as error:
        raise UsageError(f"cannot write the token file {path}: {error.strerror}") from error
    return token


def revoke_tokens(path: Path, client: str) -> int:
    """Remove all tokens of `client` from the file, and return their number. A running service notices at once.

    Raises:
        UsageError: the client has no token, or the file cannot be read or written.
    """
    _check_client(client)
    _, entries = _read(path)
    kept = [each for each in entries if each.client != client]
    if len(kept) == len(entries):
        raise UsageError(f"{client} has no token in {path}")
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write("".join(f"sha256:{each.digest} {each.client}\n" for each in kept))
            file.flush()
            os.fsync(descriptor)
        draft.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write the token file {path}: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
    return len(entries) - len(kept)


class Tokens:
    """Tokens in a file. Thread-safe. A changed file is read again, so that a revoked token fails at once."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises UsageError if the file is missing, empty, invalid, or open to other users."""
        self._path = path
        self._changing = threading.Lock()
        self._stamp, self._entries = _read(path)
        if not self._entries:
            raise UsageError(f"the token file {path} has no token", hint=_HINT)

    def client_of(self, token: str) -> str | None:
        """Return the client with the given token, or None. The time depends on no secret."""
        wanted = _digest(token)
        found = None
        for digest, client in self._current():  # Compares with every hash, also after a match.
            if hmac.compare_digest(digest, wanted):
                found = client
        return found

    def _current(self) -> list[_Entry]:
        """Return the entries of the file. An unreadable file has none: nobody gets in."""
        with self._changing:
            try:
                if _stamp(self._path.stat()) != self._stamp:
                    self._stamp, self._entries = _read(self._path)
            except (OSError, UsageError):
                self._stamp, self._entries = _Stamp(0, 0, 0), []
            return self._entries


def _read(path: Path) -> tuple[_Stamp, list[_Entry]]:
    try:
        facts = path.stat()
        _refuse_public(facts, path)
        content = read_named_regular(path, _MOST_BYTES)
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


def _refuse_public(facts: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise UsageError(f"the token file {path} is not a regular file")
    if facts.st_uid != os.geteuid():
        raise UsageError(f"the token file {path} belongs to another user")
    if facts.st_mode & 0o077:
        raise UsageError(f"other users can reach the token file {path}", hint=f"chmod 600 {path}")


def _stamp(facts: os.stat_result) -> _Stamp:
    return _Stamp(facts.st_ino, facts.st_size, facts.st_mtime_ns)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _check_client(client: str) -> None:
    if _CLIENT.fullmatch(client) is None:
        hint = "use at most 64 letters, digits, dots, - and _: alice, trainer-1"
        raise UsageError(f"{client[:80]!r} is not a valid name of a client", hint=hint)
