"""Origins of problems."""

from enum import StrEnum


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
