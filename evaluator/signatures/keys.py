"""Ed25519 keys: private keys for signing cards, public keys for verification, lists of trusted public keys.

A key is a line of text, `warpgrade-ed25519 BASE64 NAME`, like SSH public keys; a private key begins with
`warpgrade-ed25519-private`. A private key is read from a file readable only by its owner, or from the environment. The
variable is removed at once: child processes do not inherit the key. No message and no `repr` shows a private key.
"""

import base64
import binascii
import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from evaluator.errors import UsageError
from evaluator.files.safe_open import read_named_regular
from evaluator.text import one_line

VARIABLE = "WARPGRADE_SIGNING_KEY"
"""Environment variable with a private key or the path of a key file."""
_PUBLIC, _PRIVATE = "warpgrade-ed25519", "warpgrade-ed25519-private"
_KEY_BYTES = 32
_MAX_FILE_BYTES = 1 << 20
_NAME = 80
_stash: list[str] = []


class PublicKey(NamedTuple):
    """The public key of a signer, with a name given by the owner or by a user who trusts the key."""

    raw: bytes
    name: str

    @property
    def fingerprint(self) -> str:
        """Hash of the key, in SSH's notation."""
        return f"SHA256:{base64.b64encode(hashlib.sha256(self.raw).digest()).decode().rstrip('=')}"

    @property
    def line(self) -> str:
        """The key as a line of text for publication."""
        return _line(_PUBLIC, self.raw, self.name)

    def __str__(self) -> str:
        return f"{one_line(self.name, _NAME)} ({self.fingerprint})" if self.name else self.fingerprint


class SigningKey:
    """A private key with its name. The key is never shown."""

    __slots__ = ("_key", "public")

    def __init__(self, raw: bytes, name: str) -> None:
        """Create a key from its 32 bytes."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._key: Ed25519PrivateKey = Ed25519PrivateKey.from_private_bytes(raw)
        self.public = PublicKey(self._key.public_key().public_bytes_raw(), name)

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`."""
        return self._key.sign(message)

    def __repr__(self) -> str:
        return f"SigningKey({self.public.fingerprint})"

    def __reduce__(self) -> str:
        raise TypeError("a private key is not pickled")


def is_signed_by(raw: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether `signature` of `message` is valid for the public key `raw`."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(raw).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def make_key(path: Path, name: str, *, replace: bool = False) -> PublicKey:
    """Create a key pair: the private key at `path`, readable by its owner only, the public key beside it as `.pub`.

    Raises:
        UsageError: a file exists and `replace` is false, or the files cannot be written.
    """
    if not name.isprintable() or len(name) > _NAME:
        raise UsageError(f"a key's name is one printable line of at most {_NAME} characters")
    import secrets

    raw = secrets.token_bytes(_KEY_BYTES)
    public = SigningKey(raw, name).public
    public_path = path.with_name(f"{path.name}.pub")
    there = [each for each in (path, public_path) if os.path.lexists(each)]
    if there and not replace:
        hint = "choose another file, or overwrite the old key with --replace"
        raise UsageError(f"{there[0]} already exists", hint=hint)
    try:
        replace_file(path, f"{_line(_PRIVATE, raw, name)}\n", 0o600)
        replace_file(public_path, f"{public.line}\n", 0o644)
    except OSError as error:
        raise UsageError(f"cannot write a key to {path}: {error.strerror or error}") from error
    return public


def take_from_environment() -> None:
    """Remove the key variable from this process's environment and store its value: children do not inherit the key."""
    if (value := os.environ.pop(VARIABLE, None)) is not None:
        _stash[:] = [value]


def signing_key(path: Path | None, *, sandboxed: bool) -> SigningKey | None:
    """Return the key for signing, from the file `path` or else from the environment; None if neither is given.

    `sandboxed` tells whether submissions run in a sandbox.

    Raises:
        UsageError: there is no key, other users can read it, or a submission could.
    """
    take_from_environment()
    value = _stash[0].strip() if _stash else ""
    if path is None and not value:
        return None
    if not sandboxed:
        hint = f"omit --sign and {VARIABLE}: without isolation a submission can read your files"
        raise UsageError("cannot sign a grade with --sandbox none", hint=hint)
    if path is None and value.startswith(_PRIVATE):
        return _private(value, VARIABLE)
    place = Path(value) if path is None else path
    return _private(_read_private(place), str(place))


def public_keys(path: Path) -> dict[bytes, PublicKey]:
    """Read a list of public keys, one per line; `#` begins a comment. The names are those of the list.

    Raises:
        UsageError: the file cannot be read, contains no key, or contains an invalid line.
    """
    try:
        text = read_named_regular(path, _MAX_FILE_BYTES)[:_MAX_FILE_BYTES].decode("utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    found = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            raw, name = _parsed(_PUBLIC, line, f"{path}, line {number}")
            found[raw] = PublicKey(raw, name)
    if not found:
        raise UsageError(f"{path} contains no public key", hint="`warpgrade keygen` writes one into FILE.pub")
    return found


def decoded(text: str) -> bytes:
    """Decode base64; return b"" if invalid."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def encoded(raw: bytes) -> str:
    """Encode bytes as base64."""
    return base64.b64encode(raw).decode()


def _read_private(path: Path) -> str:
    from evaluator.sandbox.visible_files import refuse_readable

    try:
        mode = path.stat().st_mode
        text = read_named_regular(path, _MAX_FILE_BYTES)[:_MAX_FILE_BYTES].decode("utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise UsageError(f"cannot read the signing key {one_line(str(path), 200)}: {why}") from error
    if mode & 0o077:
        raise UsageError(f"{path} is readable by other users", hint=f"chmod 600 {path}")
    refuse_readable(path, "the signing key")
    return text.strip()


def _private(text: str, where: str) -> SigningKey:
    return SigningKey(*_parsed(_PRIVATE, text, where))


def _parsed(kind: str, line: str, where: str) -> tuple[bytes, str]:
    """Parse the line of a key. No error message repeats any part of the line, which may be a private key."""
    word, _, rest = line.strip().partition(" ")
    text, _, name = rest.strip().partition(" ")
    raw = decoded(text)
    if word != kind or len(raw) != _KEY_BYTES or not name.isprintable():
        raise UsageError(f"{where} is not a key with the prefix {kind}", hint="`warpgrade keygen FILE` creates a key")
    return raw, name.strip()[:_NAME]


def _line(kind: str, raw: bytes, name: str) -> str:
    return " ".join(filter(None, (kind, encoded(raw), name)))


def replace_file(path: Path, text: str, mode: int) -> None:
    """Write a file through a new file in the same folder; the bytes never exist under another mode."""
    import secrets

    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
