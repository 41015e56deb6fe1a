"""The file of a submission, as seen from the current folder."""

from pathlib import Path

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
