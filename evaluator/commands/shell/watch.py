"""Repeated grades after changes of files: a look at a few files five times a second."""

import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from evaluator.errors import ExitCode

POLL_S = 0.2
Stamp = tuple[int, int, int] | None
"""Inode, size and modification time of a file: an editor writes in place, or renames a new file. None: no file."""
_FIRST_MUST_WORK = frozenset({ExitCode.USAGE, ExitCode.INFRASTRUCTURE})


class Watched:
    """Files to look at. `must_exist` is missing for a moment while some editors save."""

    def __init__(self, files: Callable[[], Sequence[Path]], must_exist: Path) -> None:
        """Look for the first time. `files` is called for each look, because a folder's files may change."""
        self._files = files
        self._must_exist = must_exist
        self._seen = self._last = self._look()

    def mark(self) -> None:
        """Take the present state of the files as seen."""
        self._seen = self._last = self._look()

    def has_changed(self) -> bool:
        """Whether a change is complete: two looks in a row differ from the seen state, and not from each other."""
        before, self._last = self._last, self._look()
        return self._last != self._seen and self._last == before and self._last[self._must_exist] is not None

    def _look(self) -> dict[Path, Stamp]:
        return {path: _stamp(path) for path in (self._must_exist, *self._files())}


def _stamp(path: Path) -> Stamp:
    try:
        facts = path.stat()
    except OSError:
        return None
    if stat.S_ISDIR(facts.st_mode):  # A card or a swap file in a folder changes the time of the folder.
        return facts.st_ino, 0, 0
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def watch(
    watched: Watched, grade: Callable[[], int | None], tell: Callable[[], None], clear: Callable[[], None]
) -> int:
    """Grade, and grade again after each change, until Ctrl-C.

    `grade` returns an exit code, or None after a change during the grade. `tell` reports a finished grade, `clear`
    prepares the screen for the next. Returns early if the first grade is not possible: then a change of the files would
    hardly help.
    """
    is_first = True
    try:
        while True:
            watched.mark()
            code = grade()
            if code is not None:
                if is_first and code in _FIRST_MUST_WORK:
                    return code
                tell()
                while not watched.has_changed():
                    time.sleep(POLL_S)
            is_first = False
            clear()
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
