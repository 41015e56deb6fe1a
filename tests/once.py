"""What the tests of one run make once, whichever of its processes comes first: compiled libraries, the cache of builds.

The folder's name is in the environment, which the processes of pytest-xdist inherit. It may be passed through by every
user, as the folders of runners must be; pytest's own may not.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

_VARIABLE = "RUN_OF_TESTS"


def begin() -> None:
    """Make the folder, unless the process that started this one did."""
    if _VARIABLE not in os.environ:
        folder = tempfile.mkdtemp(prefix="grading-run-")
        Path(folder).chmod(0o711)
        os.environ[_VARIABLE] = folder


def end() -> None:
    """Remove the folder."""
    shutil.rmtree(os.environ.pop(_VARIABLE), ignore_errors=True)


def folder_for(name: str) -> Path:
    """Return a folder for one purpose."""
    folder = Path(os.environ[_VARIABLE]) / name
    folder.mkdir(mode=0o711, exist_ok=True)
    return folder


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder `name`, filled by `make` in the first process that asks. The others wait for it."""
    folder = folder_for(name)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".made").exists():
            make(folder)
            (folder / ".made").touch()
    return folder
