"""Where a problem comes from."""

from enum import StrEnum


class Origin(StrEnum):
    """What a problem's `origin` may say."""

    WARPGRADE = "warpgrade"
    """Shipped with Warpgrade."""
    FOLDER = "folder"
    """Somebody's own folder with a `problem.toml` and a `reference.py`."""
    KERNELBENCH = "kernelbench"
    """A file like `level1/19_ReLU.py`, used in place."""
