"""Scorecard files: names from foreign names, cards of earlier versions in the current form, atomic writing.

No other module of Warpgrade puts a foreign name into a path. The result is a single plain name: no separator, no `.` or
`..`, no control character, no more than a file name's length. The result never looks like one of Warpgrade's temporary
files, whose names begin with a dot. Different names give different files.

Version 1 covers every form before version 2. Later forms of version 1 only added optional fields, with these
exceptions: cards before the emulated device have no schedules of checks, and cards of the first windows have
`spot_quoted`, for quoted spot checks. Cards of two sizes before `cases` have `further_sizes`: the checks tell of them
too. In version 2, windows have no `raised_ms`, and other times (`Windows`). Up to version 3, the second opinion is
KernelBench's. Version 5 adds names of rules alone.
"""

import contextlib
import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, TypeGuard

import msgspec

from evaluator.errors import CardError, CardNotWritten, UsageError
from evaluator.files.safe_open import NotRegular, read_found, read_named_regular
from evaluator.protocol.submission_files import MANIFEST
from evaluator.records import SCHEMA_VERSION, Scorecard


def file_here(origin: str) -> str | None:
    """Return the path of a submission's file relative to the current folder; None for another origin or folder.

    The manifest represents a submission of several files.
    """
    try:
        path = Path(origin).resolve()
        inside = path.relative_to(Path.cwd())
        if (path / MANIFEST).is_file():
            return (inside / MANIFEST).as_posix()
        return inside.as_posix() if path.is_file() else None
    except (OSError, ValueError):  # also a NUL in the name
        return None


_UNSAFE = re.compile(r"[^A-Za-z0-9._+=@-]")
_LONGEST_NAME = 120
_DIGEST = 16
_MOST_PARTS = 4


def file_name(name: str) -> str:
    """Return any name as a file name; different names give different file names.

    >>> file_name("sample_0"), file_name("../x"), file_name("")
    ('sample_0', '_._x-d6b96a97d147daaa', '_-e3b0c44298fc1c14')
    """
    safe = _UNSAFE.sub("_", name)[:_LONGEST_NAME]
    if safe.startswith(".") or not safe:
        safe = f"_{safe[1:]}"
    if safe == name:
        return name
    return f"{safe}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:_DIGEST]}"


def card_place(problem: str, name: str, ending: str = "json") -> PurePosixPath:
    """Return the path, below a folder of cards, for the card of submission `name` and problem `problem`.

    >>> str(card_place("level1/19_ReLU", "mine")), str(card_place("..", "/etc/passwd", "replay.json"))
    ('level1/19_ReLU/mine.json', '_.-5ec1f7e700f37c3d/_etc_passwd-74acf31844532670.replay.json')
    """
    parts = problem.split("/")
    # A problem's name has at most two parts; a path of thousands would exceed the system's limit.
    folders = parts if len(parts) <= _MOST_PARTS else [problem]
    return PurePosixPath(*map(file_name, folders), f"{file_name(name)}.{ending}")


FIRST_VERSION = 1
INTERVALS_REMARK = "intervals followed earlier rules and were not recomputed"
"""Remark about a valid card of an earlier version."""
_SIDES = ("reference_before", "submission", "reference_after")


def is_readable(version: object) -> bool:
    """Return whether cards of a schema version can be read.

    >>> is_readable(1), is_readable(SCHEMA_VERSION), is_readable(SCHEMA_VERSION + 1), is_readable(True)
    (True, True, False, False)
    """
    return isinstance(version, int) and not isinstance(version, bool) and FIRST_VERSION <= version <= SCHEMA_VERSION


def why_unreadable(version: object) -> str:
    """Return the remedy for a card of a version refused by `is_readable`."""
    newer = isinstance(version, int) and version > SCHEMA_VERSION
    remedy = "; a newer Warpgrade wrote it, so install that version" if newer else ""
    return f"this Warpgrade reads versions {FIRST_VERSION} to {SCHEMA_VERSION}{remedy}"


def has_further_sizes(content: bytes) -> bool:
    """Return whether a card of the current version may be one of two sizes before `cases`."""
    return b'"further_sizes"' in content


def in_current_form(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document of a readable card with the current fields; `schema_version` is unchanged.

    The document may hold anything: parts of unexpected types stay, and the decoder refuses the parts.

    Raises:
        CardError: the card quotes times without a current field.
    """
    made = dict(document)
    if _is_object(problem := made.get("problem")) and "further_sizes" in problem:
        made["problem"] = {name: each for name, each in problem.items() if name != "further_sizes"}
    if document.get("schema_version") == SCHEMA_VERSION:
        return made
    made = _renamed(made, "kernelbench_correct", "benchmark_correct")
    if isinstance(checks := made.get("checks"), list):
        made["checks"] = [_check(each) if _is_object(each) else each for each in checks]
    if _is_object(timing := made.get("timing")):
        made["timing"] = timing | {name: _side(timing[name]) for name in _SIDES if name in timing}
    if isinstance(baselines := made.get("baselines"), list):
        made["baselines"] = list(_baselines(baselines))
    return made


def _check(check: dict[str, Any]) -> dict[str, Any]:
    return {"schedule": None, "launches": None} | _renamed(check, "kernelbench_ok", "benchmark_ok")


def _renamed(document: dict[str, Any], before: str, after: str) -> dict[str, Any]:
    return {after if name == before else name: value for name, value in document.items()}


def _baselines(baselines: list[Any]) -> Iterator[Any]:
    for each in baselines:
        yield each | {"samples": _side(each["samples"])} if _is_object(each) and "samples" in each else each


def _side(side: Any) -> Any:
    """Return the samples of a side without `spot_quoted`; the successor is `shared_work`."""
    if not _is_object(side) or not _is_object(windows := side.get("windows")) or "spot_quoted" not in windows:
        return side
    if windows["spot_quoted"] is not False:
        hint = "grade the submission again: single calls are quoted now where the calls of windows share work"
        raise CardError("the card quotes times of spot checks, a rule that was withdrawn", hint=hint)
    return side | {"windows": {name: each for name, each in windows.items() if name != "spot_quoted"}}


def _is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


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
