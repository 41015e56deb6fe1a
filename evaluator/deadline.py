"""The deadline of a whole grade: what is left of it, whose work used it up, and the end when it has come.

Everything that waits for a process asks how much is left. When nothing is, every confined process is killed, so that
no wait goes on, and the next step of the judge raises `DeadlineReached`. Where the judge is at work itself meanwhile
(the reference, a comparison), the same is raised in its thread; and if even that does not end it, a card is written
beside it.
"""

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from types import TracebackType
from typing import Self

from evaluator.findings import Code, finding
from evaluator.records import Finding, Status

_KILL_ROUND_S = 0.25
_ASK_AFTER_S = 1.0
_LAST_RESORT_AFTER_S = 10.0
"""How long the judge's own work may go on behind the deadline: one operation of PyTorch's cannot be interrupted."""


class Work(StrEnum):
    """What a submission uses the time of a grade for."""

    BUILDS = "its builds"
    CODE = "its own code"


class DeadlineReached(BaseException):
    """The grade has used up its time. No `Exception`: nothing that deals with a failure may go on after it."""


class Deadline:
    """How long a grade may take. Without a limit it is never reached."""

    def __init__(
        self,
        limit_s: float | None = None,
        *,
        spent_s: float = 0.0,
        submission_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin now. Another process has `spent_s` already, `submission_s` of that on the submission's builds."""
        self.limit_s = limit_s
        self._clock = clock
        self._started = clock() - spent_s
        self._used: dict[Work, float] = {Work.BUILDS: submission_s, Work.CODE: 0.0}
        self.noticed_by: set[int] = set()

    @property
    def left_s(self) -> float:
        """Say how much is left: infinity without a limit."""
        return float("inf") if self.limit_s is None else self.limit_s - (self._clock() - self._started)

    @property
    def submission_s(self) -> float:
        """Say how much of the time the submission used."""
        return sum(self._used.values())

    def check(self) -> None:
        """Raise DeadlineReached where nothing is left."""
        if self.left_s <= 0:
            self.noticed_by.add(threading.get_ident())
            raise DeadlineReached

    def within(self, timeout_s: float) -> float:
        """Cut a limit of one step to what is left. Raises DeadlineReached where that is nothing."""
        self.check()
        return min(timeout_s, self.left_s)

    @contextlib.contextmanager
    def used_by(self, work: Work | None) -> Iterator[None]:
        """Put the time of a block on the submission's account; with None it is the judge's."""
        started = self._clock()
        try:
            yield
        finally:
            if work is not None:
                self._used[work] += self._clock() - started

    def verdict(self, stage: str) -> tuple[Status, Finding]:
        """Say what it means that the deadline came in `stage`.

        It is the submission's fault where its own work used at least half of the time, and this machine's where the
        judge's did: then nothing was learned of the submission.
        """
        limit_s = self.limit_s or 0.0
        builds_s, code_s = self._used[Work.BUILDS], self._used[Work.CODE]
        rest_s = max(limit_s - builds_s - code_s, 0.0)
        message = (
            f"the grade was ended after {limit_s:g} s, in the stage {stage!r}: the submission's builds took "
            f"{builds_s:.0f} s, its code {code_s:.0f} s, the judge's own work {rest_s:.0f} s"
        )
        blamed = self.submission_s >= limit_s / 2
        return Status.TIMEOUT if blamed else Status.INFRA_ERROR, finding(Code.DEADLINE, message, stage=stage)


class Guard:
    """Ends the work of the thread that enters it when the deadline has come. A context manager.

    Leaving it is the end of the grade, whether or not that was in time.
    """

    def __init__(self, deadline: Deadline, last_resort: Callable[[], None] | None = None) -> None:
        """Watch over `deadline`. `last_resort` is called where the work goes on for seconds all the same."""
        self._deadline = deadline
        self._last_resort = last_resort
        self._kills: list[Callable[[], None]] = []
        self._over = threading.Event()
        self._hand = threading.Lock()
        self._thread_id = 0
        self._asked = False

    def kill_with(self, kill: Callable[[], None]) -> None:
        """Have `kill` called when the deadline has come, again and again: it ends processes that the work waits for."""
        self._kills.append(kill)

    def __enter__(self) -> Self:
        self._thread_id = threading.get_ident()
        if self._deadline.limit_s is not None:
            threading.Thread(target=self._watch, name="deadline", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        with self._hand:
            if self._asked:
                _raise_in(self._thread_id, None)

    def _watch(self) -> None:
        while not self._over.wait(min(max(self._deadline.left_s, _KILL_ROUND_S), threading.TIMEOUT_MAX)):
            self.look()

    def look(self) -> None:
        """Do what is due by now: nothing before the deadline, then kill, then ask, then the last resort."""
        behind_s = -self._deadline.left_s
        if behind_s < 0:
            return
        for kill in tuple(self._kills):
            # One starter that has ended must not keep the others' processes alive.
            with contextlib.suppress(Exception):
                kill()
        if behind_s >= _ASK_AFTER_S:
            self._ask()
        if behind_s >= _LAST_RESORT_AFTER_S and self._last_resort is not None and not self._over.is_set():
            self._last_resort()

    def _ask(self) -> None:
        """Raise in the thread at work, once: what is raised twice would interrupt its tidying up."""
        with self._hand:
            if self._thread_id not in self._deadline.noticed_by and not self._asked and not self._over.is_set():
                self._asked = True
                _raise_in(self._thread_id, DeadlineReached)


def _raise_in(thread_id: int, error: type[BaseException] | None) -> None:
    """Have a thread raise `error` before its next step in Python; None takes that back."""
    what = ctypes.py_object(error) if error is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), what)
