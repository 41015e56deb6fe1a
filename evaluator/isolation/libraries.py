"""Where the judge has its packages from, beside its own Python: PYTHONPATH, a user's site-packages, a .pth file.

The user chose them, and the judge runs what lies there; so starters import from there too, and runners read it. A
folder counts where packages are installed in it, or PyTorch lies in it. One that merely holds somebody's files does
not: what is on PYTHONPATH for another reason (a project with its problems and cards) stays hidden from runners.
"""

import functools
import os
import site
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path


def library_folders() -> tuple[str, ...]:
    """List them in the order in which this process looks there; none where Python's own folders have everything."""
    own = [*site.getsitepackages(), *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))]
    try:
        current = os.getcwd()  # noqa: PTH109 - compared as text
    except OSError:  # It was removed: nothing below it is there any more.
        current = "/"
    return _chosen(tuple(sys.path), tuple(own), current)


@functools.cache
def _chosen(path: Sequence[str], own: Sequence[str], current: str) -> tuple[str, ...]:
    known = {os.path.realpath(folder) for folder in own}
    found = []
    for entry in path:
        folder = os.path.abspath(os.path.join(current, entry))  # noqa: PTH100, PTH118 - keeps how it is spelled
        real = os.path.realpath(folder)
        if entry and real not in known and _holds_packages(Path(folder)):
            found.append(folder)
            known.add(real)
    return tuple(found)


def _holds_packages(folder: Path) -> bool:
    try:
        if (folder / "torch" / "__init__.py").is_file():
            return True
        with os.scandir(folder) as entries:
            return any(entry.name.endswith(".dist-info") and entry.is_dir() for entry in entries)
    except OSError:
        return False
