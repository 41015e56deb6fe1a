"""The file of a submission, as seen from the current folder."""

from pathlib import Path


def file_here(origin: str) -> str | None:
    """Return the path of a submission's file relative to the current folder; None for another origin or folder."""
    try:
        path = Path(origin).resolve()
        inside = path.relative_to(Path.cwd())
        return inside.as_posix() if path.is_file() else None
    except (OSError, ValueError):  # also a NUL in the name
        return None
