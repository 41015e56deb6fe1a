"""Origins of problems, reading of their text files, and parts of error messages about them."""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from evaluator.errors import ProblemError
from evaluator.files.safe_open import NotRegular, read_found, read_named_regular


class Origin(StrEnum):
    """Values of a problem's `origin`."""

    WARPGRADE = "warpgrade"
    """Shipped with Warpgrade."""
    FOLDER = "folder"
    """A user's folder with a `problem.toml` and a `reference.py`."""
    DEFINITION = "definition"
    """A definition of SOL-ExecBench or FlashInfer-Trace, or a folder of kernelbench.com or Atrex-Bench."""
    KERNELBENCH = "kernelbench"
    """A file like `level1/19_ReLU.py`, used in place."""


MAX_FILE_BYTES = 8 << 20
"""Far above any file of a problem."""


def read_bytes(path: Path, found_in: Path | None = None) -> bytes:
    """Read a file of a problem.

    Args:
        path: the file.
        found_in: the folder whose listing contained the file; no part of the path below may be a link. None if the user
            named the file, or for shipped problems.

    Raises:
        ProblemError: the file cannot be read, is not a regular file, or is too large.
    """
    try:
        if found_in is None:
            data = read_named_regular(path, MAX_FILE_BYTES)
        else:
            data = read_found(found_in, path.relative_to(found_in).as_posix(), MAX_FILE_BYTES)
    except NotRegular as error:
        hint = "replace the link by the file itself"
        raise ProblemError(f"{path}: refused: {error.strerror}", hint=hint) from error
    except OSError as error:
        raise ProblemError(f"{path}: cannot read: {error.strerror or error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise ProblemError(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB, the limit for a problem's files")
    return data


def decode(data: bytes, path: Path | str) -> str:
    """Decode the bytes of `path`; a byte order mark is dropped, line ends stay.

    Raises:
        ProblemError: the bytes are not UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"{path}: not UTF-8 text (byte {error.start})"
        raise ProblemError(message, hint="save the file as UTF-8") from error


def one_of(allowed: Iterable[object]) -> str:
    """Return the list of allowed values for a message.

    >>> one_of(["train", "eval"])
    'allowed: train, eval'
    """
    return f"allowed: {', '.join(str(value) for value in allowed)}"


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return a hint with the nearest of `words`, or "".

    >>> did_you_mean("sizez", ["sizes", "split"])
    'did you mean sizes?'
    """
    import difflib

    similar = difflib.get_close_matches(word, list(words), n=1)
    return f"did you mean {similar[0]}?" if similar else ""
