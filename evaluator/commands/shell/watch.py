"""Repeated grades after changes of files: a look at a few files five times a second, and a process per grade."""

import contextlib
import os
import select
import signal
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, Self

from evaluator.errors import ExitCode
from evaluator.interrupts import blocked, held_back
from evaluator.sandbox.kernel.syscalls import die_with_parent

POLL_S = 0.2
_GRACE_S = 20.0
"""Time for an interrupted grade to remove processes and files."""

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


class GradeProcess:
    """A grade in a new process, outside the terminal's process group: the parent passes Ctrl-C on, once."""

    def __init__(self, grade: Callable[[], NoReturn]) -> None:
        """Start the process. The kernel ends the process with the parent."""
        us = os.getpid()
        # A SIGINT right after the fork would raise in the child outside of the block, and the child would watch, too.
        with blocked(signal.SIGINT):
            self._pid = os.fork()
            if self._pid == 0:
                try:
                    os.setpgid(0, 0)
                    # A shell's background job ignores SIGINT, and the parent ends a grade by SIGINT.
                    signal.signal(signal.SIGINT, signal.default_int_handler)
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
                    die_with_parent(us, signal.SIGTERM)
                    grade()
                finally:
                    os._exit(ExitCode.INFRASTRUCTURE)
        self._ended = os.pidfd_open(self._pid)
        self._code: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Interrupt a running grade. A second Ctrl-C kills the grade."""
        try:
            if self.code_within(0.0) is None:
                signal.pidfd_send_signal(self._ended, signal.SIGINT)
                self.code_within(_GRACE_S)
        finally:
            if self._code is None:
                signal.pidfd_send_signal(self._ended, signal.SIGKILL)
                self.code_within(None)
            os.close(self._ended)

    def code_within(self, limit_s: float | None) -> int | None:
        """Return the exit code of the process, if the process ends within `limit_s`."""
        if self._code is None and select.select([self._ended], [], [], limit_s)[0]:
            code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
            self._code = code if code >= 0 else ExitCode.INFRASTRUCTURE
        return self._code


def watch(watched: Watched, grade: Callable[[], NoReturn], tell: Callable[[], None], clear: Callable[[], None]) -> int:
    """Grade, and grade again after each change, until Ctrl-C; a change during a grade ends the grade.

    `tell` reports a finished grade, `clear` prepares the screen for the next. Returns early if the first grade is not
    possible: then a change of the files would hardly help.
    """
    is_first = True
    try:
        while True:
            watched.mark()
            with contextlib.ExitStack() as ending:
                with held_back(signal.SIGINT):  # Otherwise Ctrl-C right after the start would interrupt no grade.
                    grading = ending.enter_context(GradeProcess(grade))
                while (code := grading.code_within(POLL_S)) is None and not watched.has_changed():
                    pass
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
