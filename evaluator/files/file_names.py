"""File names from foreign names: of a card, a stream, a file, a problem's folder.

No other module of Warpgrade puts a foreign name into a path. The result is a single plain name: no separator, no `.` or
`..`, no control character, no more than a file name's length. The result never looks like one of Warpgrade's temporary
files, whose names begin with a dot. Different names give different files.
"""

import hashlib
import re
from pathlib import Path, PurePosixPath

from evaluator.protocol.submission_files import MANIFEST


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
