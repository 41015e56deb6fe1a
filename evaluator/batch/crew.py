"""The workers of a batch: each slot of the crew takes one task after another and grades it in a worker of its own.

A worker that dies, hangs or reports that the machine failed is replaced, and its task tried again on the new one, a
little later each time. Nothing of this is the submission's fault, so nothing of it is counted against it.
"""

import contextlib
import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from evaluator.batch.manifest import Terms
from evaluator.batch.protocol import Graded, NotGraded, Order, Stage, receive_reply, send
from evaluator.batch.tasks import Task
from evaluator.isolation.files import source_root
from evaluator.pipeline import Unread
from evaluator.records import Status
from evaluator.submissions import Submission

BACKOFF_S = (1.0, 5.0)
"""How long to wait before the second and the third attempt; there is no fourth."""
_GRADE_LIMIT_S = 3600.0
_END_S = 10.0
_JOIN_S = 1.0
# -P: nothing is imported from the current folder, which may well be that of the submissions.
_PYTHON = (sys.executable, "-P", "-X", "utf8")
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from evaluator.batch import worker; sys.exit(worker.main(sys.argv[2:]))"
)


class Slot(NamedTuple):
    """What a worker has for itself: these cores (all where empty) and this GPU."""

    cores: tuple[int, ...] = ()
    gpu: str | None = None


class Began(NamedTuple):
    """A slot began a task, or goes on with another stage of it."""

    slot: int
    task: Task
    stage: str


class Ended(NamedTuple):
    """A task is through: with a card, or, where no worker brought one, with the reason."""

    slot: int
    task: Task
    result: Graded | NotGraded
    attempts: int
    wall_s: float


class Drained(NamedTuple):
    """A slot has no more to do; `error` is what ended it, if anything did."""

    slot: int
    error: BaseException | None


class Worker:
    """One process of `evaluator.batch.worker` and the pipes to it."""

    def __init__(self, slot: Slot, log: Path | None) -> None:
        """Start it. What it prints goes to the end of `log`, else to stderr."""
        replies, its_replies = os.pipe()
        arguments = [str(its_replies)]
        if slot.cores:
            arguments.append(",".join(map(str, slot.cores)))
        try:
            with contextlib.ExitStack() as opened:
                output = 2 if log is None else opened.enter_context(log.open("ab")).fileno()
                self._process = subprocess.Popen(
                    [*_PYTHON, "-c", _BOOT, str(source_root()), *arguments],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    pass_fds=(its_replies,),
                    start_new_session=True,  # Ctrl-C is for the batch, which then ends its workers in order.
                )
        except BaseException:
            os.close(replies)
            raise
        finally:
            os.close(its_replies)
        assert self._process.stdin is not None  # noqa: S101 - for the type checker: PIPE was asked for
        self._orders = self._process.stdin
        self._replies = replies

    def grade(self, order: Order, on_stage: Callable[[Stage], None]) -> Graded | NotGraded:
        """Have one grade made."""
        until_s = time.monotonic() + _GRADE_LIMIT_S
        try:
            send(self._orders.fileno(), order)
            while True:
                readable, _, _ = select.select([self._replies], [], [], max(0.0, until_s - time.monotonic()))
                if not readable:
                    return NotGraded(reason=f"the grade was not over after {_GRADE_LIMIT_S:.0f} s", again=True)
                reply = receive_reply(self._replies)
                if not isinstance(reply, Stage):
                    return reply
                on_stage(reply)
        except (EOFError, OSError, ValueError):  # ValueError: what came was no message
            return NotGraded(reason="the process that made the grade died", again=True)

    def interrupt(self) -> None:
        """Make it end its grade and itself. May be called while another thread waits in `grade`."""
        self._process.terminate()

    def wait(self) -> None:
        """Wait for its end after `interrupt`; it has only so long."""
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # and the kernel kills its grade
            self._process.wait()

    def close(self) -> None:
        """End it, with all that it started. Not while another thread waits in `grade`."""
        self.interrupt()
        self.wait()
        with contextlib.suppress(OSError):
            self._orders.close()
        os.close(self._replies)


class Crew:
    """Slots that take tasks from `next_task` until it has no more, each in a thread of its own.

    What happens is put into `events`, for one reader. Leaving the context ends all workers, whatever they are doing.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        terms: Terms,
        next_task: Callable[[], Task | None],
        *,
        logs: Path | None = None,
        fail_fast: bool = False,
    ) -> None:
        """Begin. `next_task` is called from one thread at a time; `logs` is a folder for what workers print.

        With `fail_fast` no more tasks are taken once one is not correct; what has begun is ended.
        """
        self._fail_fast = fail_fast
        self.events: queue.SimpleQueue[Began | Ended | Drained] = queue.SimpleQueue()
        self._terms = terms
        self._next_task = next_task
        self._logs = logs
        self._taking = threading.Lock()
        self._changing = threading.Lock()
        self._stopping = threading.Event()
        self._workers: dict[int, Worker] = {}
        # Daemons: one may be waiting for somebody else's next line when the batch is interrupted.
        self._threads = [
            threading.Thread(target=self._run, args=(number, slot), name=f"slot-{number}", daemon=True)
            for number, slot in enumerate(slots)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changing:
            self._stopping.set()
            workers = list(self._workers.values())
        for worker in workers:  # all at once, then wait for each
            worker.interrupt()
        for worker in workers:
            worker.wait()
        for thread in self._threads:
            thread.join(_JOIN_S)

    def _run(self, number: int, slot: Slot) -> None:
        error: BaseException | None = None
        try:
            while not self._stopping.is_set():
                with self._taking:
                    task = self._next_task()
                if task is None:
                    break
                self._see_through(number, slot, task)
        except BaseException as raised:  # noqa: BLE001 - the reader of the events raises it again
            error = raised
        finally:
            with contextlib.suppress(BaseException):
                self._dismiss(number)
            self.events.put(Drained(number, error))

    def _see_through(self, number: int, slot: Slot, task: Task) -> None:
        order = Order(
            problem=task.problem,
            submission=task.submission if isinstance(task.submission, Submission) else None,
            unread=task.submission if isinstance(task.submission, Unread) else None,
            terms=self._terms,
            gpu=slot.gpu,
        )
        began_s = time.monotonic()
        self.events.put(Began(number, task, "start"))
        for attempt, pause_s in enumerate((*BACKOFF_S, None), start=1):
            worker = self._worker(number, slot)
            if worker is None:
                return
            result = worker.grade(order, lambda stage: self.events.put(Began(number, task, stage.name)))
            if self._stopping.is_set():
                return
            again = _worth_another(result)
            if again:
                self._dismiss(number)
            if not again or pause_s is None:
                if self._fail_fast and not _correct(result):
                    with self._taking:  # before this slot asks for another, and before anybody reads of it
                        self._next_task = lambda: None
                self.events.put(Ended(number, task, result, attempt, time.monotonic() - began_s))
                return
            self.events.put(Began(number, task, "again"))
            if self._stopping.wait(pause_s):
                return

    def _worker(self, number: int, slot: Slot) -> Worker | None:
        """Give the slot's worker, a new one where it has none; None where the crew is to stop."""
        with self._changing:
            if self._stopping.is_set():
                return None
            if number not in self._workers:
                log = self._logs / f"worker-{number}.log" if self._logs is not None else None
                self._workers[number] = Worker(slot, log)
            return self._workers[number]

    def _dismiss(self, number: int) -> None:
        with self._changing:
            worker = self._workers.pop(number, None)
        if worker is not None:
            worker.close()


def _correct(result: Graded | NotGraded) -> bool:
    return isinstance(result, Graded) and result.card.status is Status.CORRECT


def _worth_another(result: Graded | NotGraded) -> bool:
    match result:
        case Graded(card=card):
            return card.status is Status.INFRA_ERROR
        case NotGraded(again=again):
            return again
