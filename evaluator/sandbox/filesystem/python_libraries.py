"""Package folders beside this Python's own: PYTHONPATH, user site-packages, .pth files.

The user chose the folders and the judge runs their code. Starters therefore import from there too, and runners have
read access. A folder counts if packages are installed in it or if it contains PyTorch. A folder on PYTHONPATH for
another reason (a project with problems and cards) stays hidden from runners.
"""

import functools
import os
import site
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path


def library_folders() -> tuple[str, ...]:
    """Return the folders in this process's search order; none if Python's own folders hold every package."""
    own_folders = [*site.getsitepackages(), *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))]
    try:
        current = os.getcwd()  # noqa: PTH109 - compared as text
    except OSError:  # Removed: nothing exists below.
        current = "/"
    return _chosen(tuple(sys.path), tuple(own_folders), current)


@functools.cache
def _chosen(path: Sequence[str], own_folders: Sequence[str], current: str) -> tuple[str, ...]:
    covered = {os.path.realpath(folder) for folder in own_folders}
    folders = []
    for entry in path:
        folder = os.path.abspath(os.path.join(current, entry))  # noqa: PTH100, PTH118 - keeps how it is spelled
        real = os.path.realpath(folder)
        if entry and real not in covered and _holds_packages(Path(folder)):
            folders.append(folder)
            covered.add(real)
    return tuple(folders)


def _holds_packages(folder: Path) -> bool:
    try:
        if (folder / "torch" / "__init__.py").is_file():
            return True
        with os.scandir(folder) as entries:
            return any(entry.name.endswith(".dist-info") and entry.is_dir() for entry in entries)
    except OSError:
        return False
