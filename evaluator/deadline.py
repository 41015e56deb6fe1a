"""The deadline of a whole grade: remaining time, attribution of used time, and the end of an overdue grade.

Every wait for a process is limited to the remaining time. At the deadline, all confined processes are killed, so that
every wait ends, and the judge's next step raises `DeadlineReached`. If the judge itself is computing (the reference, a
comparison), the exception is raised in its thread. If the thread still continues, another thread writes a card.
"""

import contextlib
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
"""Grace period for the judge's own work after the deadline: a single PyTorch operation cannot be interrupted."""


class TimeUse(StrEnum):
    """A submission's uses of a grade's time."""

    BUILDS = "its builds"
    CODE = "its own code"


class DeadlineReached(BaseException):
    """The grade has used up its time. Not an `Exception`, so that no error handler continues the grade."""


class Deadline:
    """The time limit of a grade. Without a limit, the deadline is never reached."""

    def __init__(
        self,
        limit_s: float | None = None,
        *,
        spent_s: float = 0.0,
        submission_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start now. Another process already used `spent_s`, of which `submission_s` for the submission's builds."""
        self.limit_s = limit_s
        self._clock = clock
        self._started = clock() - spent_s
        self._used: dict[TimeUse, float] = {TimeUse.BUILDS: submission_s, TimeUse.CODE: 0.0}
        self.noticed_by: set[int] = set()

    @property
    def left_s(self) -> float:
        """The remaining time; infinity without a limit."""
        return float("inf") if self.limit_s is None else self.limit_s - (self._clock() - self._started)

    @property
    def submission_s(self) -> float:
        """The time used by the submission."""
        return sum(self._used.values())

    def check(self) -> None:
        """Raise DeadlineReached if no time is left."""
        if self.left_s <= 0:
            self.noticed_by.add(threading.get_ident())
            raise DeadlineReached

    def within(self, timeout_s: float) -> float:
        """Return the limit of one step, reduced to the remaining time. Raises DeadlineReached if no time is left."""
        self.check()
        return min(timeout_s, self.left_s)

    @contextlib.contextmanager
    def used_by(self, work: TimeUse | None) -> Iterator[None]:
        """Attribute the time of a block to the submission's `work`; None attributes the time to the judge."""
        started = self._clock()
        try:
            yield
        finally:
            if work is not None:
                self._used[work] += self._clock() - started

    def verdict(self, stage: str) -> tuple[Status, Finding]:
        """Return the status and the finding for a deadline reached in `stage`.

        The submission is at fault if its own work used at least half of the time. Otherwise the machine is at fault,
        and nothing was learned about the submission.
        """
        limit_s = self.limit_s or 0.0
        builds_s, code_s = self._used[TimeUse.BUILDS], self._used[TimeUse.CODE]
        rest_s = max(limit_s - builds_s - code_s, 0.0)
        message = (
            f"the grade was ended after {limit_s:g} s, in the stage {stage!r}: the submission's builds took "
            f"{builds_s:.0f} s, its code {code_s:.0f} s, the judge and the problem's code {rest_s:.0f} s"
        )
        blamed = self.submission_s >= limit_s / 2
        return Status.TIMEOUT if blamed else Status.INFRA_ERROR, finding(Code.DEADLINE, message, stage=stage)


class Guard:
    """A context manager that ends the work of its thread at the deadline.

    Leaving the context ends the grade, in time or not.
    """

    def __init__(self, deadline: Deadline, last_resort: Callable[[], None] | None = None) -> None:
        """Watch `deadline`. `last_resort` is called if the work continues for seconds after the deadline."""
        self._deadline = deadline
        self._last_resort = last_resort
        self._kills: list[Callable[[], None]] = []
        self._over = threading.Event()
        self._hand = threading.Lock()
        self._thread_id = 0
        self._asked = False

    def kill_with(self, kill: Callable[[], None]) -> None:
        """Call `kill` at the deadline, repeatedly, to end the processes that the work waits for."""
        self._kills.append(kill)

    def __enter__(self) -> Self:
        self._thread_id = threading.get_ident()
        if self._deadline.limit_s is not None:
            threading.Thread(target=self._watch, name="deadline", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Stop watching: no exception is raised in the thread after this call.

        DeadlineReached can interrupt this call, once; then a second call ends the watch.
        """
        self._over.set()
        with self._hand:
            pass  # `_ask` is over, or will find `_over` set. The return from the lock raises a pending exception.

    def _watch(self) -> None:
        while not self._over.wait(min(max(self._deadline.left_s, _KILL_ROUND_S), threading.TIMEOUT_MAX)):
            self.look()

    def look(self) -> None:
        """Act by the time past the deadline: nothing before, then kill, then raise, then the last resort."""
        behind_s = -self._deadline.left_s
        if behind_s < 0:
            return
        for kill in tuple(self._kills):
            # A dead starter must not keep the processes of other starters alive.
            with contextlib.suppress(Exception):
                kill()
        if behind_s >= _ASK_AFTER_S:
            self._ask()
        if behind_s >= _LAST_RESORT_AFTER_S and self._last_resort is not None and not self._over.is_set():
            self._last_resort()

    def _ask(self) -> None:
        """Raise the exception in the working thread, once: a second exception would interrupt the cleanup."""
        with self._hand:
            if self._thread_id not in self._deadline.noticed_by and not self._asked and not self._over.is_set():
                self._asked = True
                _raise_in(self._thread_id, DeadlineReached)


def _raise_in(thread_id: int, error: type[BaseException]) -> None:
    """Raise `error` in a thread when the thread next enters a Python function, returns from C or repeats a loop.

    There is no withdrawal, which would be PyThreadState_SetAsyncExc(thread, NULL): CPython 3.11 then never clears its
    flag for pending exceptions. While the flag is set, a function entered under `sys.setprofile` or `sys.settrace`
    repeats its first instruction for ever.
    """
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(error))
