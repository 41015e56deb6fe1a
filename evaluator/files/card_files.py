"""Scorecard files: written atomically, read with suspicion."""

import contextlib
import errno
import os
import re
import stat
from pathlib import Path

import msgspec

from evaluator.errors import CardError, CardNotWritten, UsageError
from evaluator.files.earlier_cards import has_further_sizes, in_current_form, is_readable, why_unreadable
from evaluator.files.safe_open import NotRegular, read_found, read_named_regular
from evaluator.records import SCHEMA_VERSION, Scorecard

MAX_CARD_BYTES = 64 * 1024 * 1024
"""Far above a card with a full-size source, build logs and thousands of samples."""

_UNFINISHED = re.compile(r"\.warpgrade-[0-9a-f]{16}\.tmp")
_OUT_OF_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})


class _Versioned(msgspec.Struct):
    """The part of a card that is read before its layout is known."""

    schema_version: int


def card_bytes(card: Scorecard) -> bytes:
    """Return `card` as JSON for people and programs: indented, one final line break."""
    return msgspec.json.format(msgspec.json.encode(card), indent=2) + b"\n"


def check_target(path: Path, *, named: bool = True) -> None:
    """Verify before grading that a card can be stored at `path`; see `write_card`.

    Raises:
        UsageError: the folder cannot be created or written to, or `path` is not a regular file.
        CardNotWritten: the disk is full or broken.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _refuse_what_is_no_file(path, follow=named)
        trial = _temporary_beside(path)
        trial.touch(exist_ok=False)
        trial.unlink()
    except OSError as error:
        message = f"cannot write a scorecard to {path}: {_reason(error)}"
        if error.errno in _OUT_OF_SPACE:
            raise CardNotWritten(message, hint="free disk space, or choose another file with --output") from error
        raise UsageError(message, hint="choose another file with --output FILE") from error


def _refuse_what_is_no_file(path: Path, *, follow: bool) -> None:
    """Raise UsageError if `path` is a folder, a pipe or a device: replacing /dev/null is never intended."""
    try:
        is_file = stat.S_ISREG(path.stat(follow_symlinks=follow).st_mode)
    except FileNotFoundError:
        return
    if not is_file:
        message = f"{path} exists and is not a file"
        raise UsageError(message, hint="name a file for --output; --json writes the scorecard to stdout")


def write_card(card: Scorecard, path: Path, *, named: bool = True) -> None:
    """Store `card` at `path` atomically; on return the card is on the disk.

    If the user `named` the path and it is a link, the link stays and its target is replaced. Otherwise a link itself is
    replaced, wherever it leads.

    Raises:
        CardNotWritten: with the reason; a previous file at `path` is unchanged.
    """
    try:
        write_whole(path.resolve() if named else path, card_bytes(card))
    except (OSError, UnicodeError) as error:
        message = f"cannot write the scorecard to {path}: {_reason(error)}"
        raise CardNotWritten(message, hint="free disk space, then repeat the command") from error


def write_whole(target: Path, content: bytes) -> None:
    """Write a file atomically, through a new file in the same folder with an unpredictable name.

    Raises OSError; a previous file is unchanged.
    """
    temporary = _temporary_beside(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        _sync_folder(target.parent)
    finally:
        # Runs on an interrupt too; after the replacement the temporary file no longer exists.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def read_bytes(path: Path, found_in: Path | None = None) -> bytes:
    """Read the file of a card, at most `MAX_CARD_BYTES`.

    Args:
        path: the file.
        found_in: the folder whose listing contained the file; no part of the path below may be a link. None if the user
            named the file.

    Raises:
        CardError: the file cannot be read, is not a regular file, or is too large.
    """
    try:
        if found_in is None:
            content = read_named_regular(path, MAX_CARD_BYTES)
        else:
            content = read_found(found_in, path.relative_to(found_in).as_posix(), MAX_CARD_BYTES)
    except NotRegular as error:
        raise CardError(f"{path} is not a card file: {error.strerror}") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise CardError(f"cannot read {path}: {_reason(error)}") from error
    if len(content) > MAX_CARD_BYTES:
        raise CardError(f"{path} is larger than {MAX_CARD_BYTES >> 20} MiB, the limit for a scorecard")
    return content


def read_card(path: Path, found_in: Path | None = None) -> Scorecard:
    """Read the scorecard at `path`; see `read_bytes` for `found_in`.

    A card of an earlier version is returned in the current form, with the version of the file.

    Raises:
        CardError: the file cannot be read or is not a scorecard of a known version.
    """
    return card_of(read_bytes(path, found_in), path)


def version_of(content: bytes) -> int:
    """Return the schema version of a card. Raises ValueError if the content is no card."""
    return msgspec.json.decode(content, type=_Versioned).schema_version


def card_of(content: bytes, path: Path) -> Scorecard:
    """Decode the scorecard read from `path`, in the current form. Raises the errors of `read_card`."""
    try:
        version = version_of(content)
        if version == SCHEMA_VERSION and not has_further_sizes(content):
            return msgspec.json.decode(content, type=Scorecard)
        if is_readable(version):
            made = in_current_form(msgspec.json.decode(content))
            return msgspec.json.decode(msgspec.json.encode(made), type=Scorecard)
    except CardError as error:
        raise CardError(f"{path}: {error.message}", hint=error.hint) from error
    except (ValueError, RecursionError) as error:
        hint = f"`warpgrade check-card {path}` lists the faults"
        raise CardError(f"{path} is not a scorecard: {error}", hint=hint) from error
    raise CardError(f"{path} has card version {version}; {why_unreadable(version)}")


def is_unfinished(name: str) -> bool:
    """Return whether a file of this name was left by a process that was killed while writing.

    >>> is_unfinished(".warpgrade-0123456789abcdef.tmp"), is_unfinished("notes.tmp")
    (True, False)
    """
    return _UNFINISHED.fullmatch(name) is not None


def _temporary_beside(path: Path) -> Path:
    return path.with_name(f".warpgrade-{os.urandom(8).hex()}.tmp")


def _sync_folder(folder: Path) -> None:
    """Flush the new name to the disk; some file systems cannot, and the card is safe without."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
