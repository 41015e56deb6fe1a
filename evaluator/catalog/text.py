"""Read the text of a problem's files, and word the messages about them."""

import difflib
from collections.abc import Iterable
from pathlib import Path

from evaluator.errors import ProblemError


def read_bytes(path: Path) -> bytes:
    """Read a file of a problem.

    Raises:
        ProblemError: the system does not let us.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise ProblemError(f"{path}: cannot be read: {error.strerror or error}") from error


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
