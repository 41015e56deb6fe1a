"""Read the text of a problem's files, and word the messages about them."""

import difflib
from collections.abc import Iterable
from pathlib import Path

from evaluator.errors import ProblemError
from evaluator.files.reading import NotRegular, read_found, read_named_regular

MAX_FILE_BYTES = 8 << 20
"""Far more than any file of a problem."""


def read_bytes(path: Path, found_in: Path | None = None) -> bytes:
    """Read a file of a problem.

    Args:
        path: the file.
        found_in: the folder in which it was found by looking around: no part of the path below may be a link. None
            where the user named it, or it came with Warpgrade.

    Raises:
        ProblemError: the system does not let us, it is no regular file, or it is too large.
    """
    try:
        if found_in is None:
            data = read_named_regular(path, MAX_FILE_BYTES)
        else:
            data = read_found(found_in, path.relative_to(found_in).as_posix(), MAX_FILE_BYTES)
    except NotRegular as error:
        hint = "put the files themselves there"
        raise ProblemError(f"{path}: is not read: {error.strerror}", hint=hint) from error
    except OSError as error:
        raise ProblemError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise ProblemError(f"{path}: is larger than {MAX_FILE_BYTES >> 20} MiB: no file of a problem is")
    return data


def decode(data: bytes, path: Path) -> str:
    """Decode what was read from `path`; a byte order mark is dropped, line ends stay.

    Raises:
        ProblemError: it is not UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"{path}: is not UTF-8 text (byte {error.start})"
        raise ProblemError(message, hint="save the file as UTF-8") from error


def one_of(allowed: Iterable[object]) -> str:
    """List what is allowed.

    >>> one_of(["train", "eval"])
    'allowed: train, eval'
    """
    return f"allowed: {', '.join(str(each) for each in allowed)}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Name the nearest of the `known` words, or nothing.

    >>> did_you_mean("sizez", ["sizes", "split"])
    'did you mean sizes?'
    """
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]}?" if near else ""
