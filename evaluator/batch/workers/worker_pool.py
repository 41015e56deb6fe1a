"""Worker pool of a batch, a program or a server: each slot takes tasks in turn, and grades in a process of the slot.

After a crash, a hang or a failure of the machine, a new worker replaces the old and tries the task again. The pause
grows with each attempt. A failure of the machine never counts against the submission.
"""

import contextlib
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from evaluator.batch.runs.tasks import Task
from evaluator.batch.workers.messages import (
    Built,
    GradeFinished,
    GradePart,
    NotGraded,
    PrepareWorker,
    Result,
    StageEntered,
    WorkerOrder,
    may_be_the_machines,
    worth_another,
)
from evaluator.batch.workers.queues import BuiltTask, Errand, GpuQueue, SlotState, TaskSource
from evaluator.batch.workers.worker_handle import Hire, LocalWorker, NoWorker, Slot, WorkerHandle
from evaluator.errors import InfraError
from evaluator.grade_options import GradeOptions
from evaluator.grading.request import Begun, Unread
from evaluator.records import Status
from evaluator.submission.read import Submission

BACKOFF_S = (1.0, 5.0)
"""Pauses before the second and the third attempt, which is the last."""
_ROOM = 4
"""Limit of built submissions without a GPU, for each building slot."""
_IDLE_S = 10.0
"""Time before a slot without work releases the GPU."""
_JOIN_S = 1.0
NO_STAGES = frozenset({"start", "built"})
"""Names of `TaskBegan` beside the stages of a grade."""
_CANCELLED = NotGraded(reason="the grade was cancelled", again=False)
_STARTING_PART = 4
"""A quarter of the local building workers starts at a time. Each start imports PyTorch twice, in the worker and in the
starter. When all start at once, the first build begins after the last import, and the GPUs wait."""
_LEAST_STARTING = 2
_START_S = 20.0
"""Longest wait of a worker for the start of earlier workers."""


class TaskBegan(NamedTuple):
    """A slot started a task, or entered the next stage, at `at_s` of the monotonic clock."""

    slot: int
    task: Task
    stage: str
    at_s: float
    detail: str = ""


class TaskEnded(NamedTuple):
    """Final result of a task: a card, or the reason why no worker made one."""

    slot: int
    task: Task
    result: GradeFinished | NotGraded
    attempts: int
    wall_s: float
    at_s: float


class SlotDrained(NamedTuple):
    """A slot has ended; `error` is the cause, if any."""

    slot: int
    error: BaseException | None


class WorkerPool:
    """Slots, each in a thread, that take tasks from a source until the tasks end.

    Events go to `events`, for one reader. The exit of the context ends all workers, even during a grade.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        options: GradeOptions,
        tasks: TaskSource,
        *,
        logs: Path | None = None,
        fail_fast: bool = False,
        hire: Hire | None = None,
        pauses_s: Sequence[float] | None = None,
        idle_s: float | None = None,
    ) -> None:
        """Create the threads.

        Args:
            slots: the slots; after a lost machine (`NoWorker`) the remaining slots take over.
            options: options of all tasks without `options`.
            tasks: source of the tasks.
            logs: folder for the output of workers.
            fail_fast: take no further task after the first incorrect result, and end all current grades.
            hire: factory of a slot's worker, with its log file; None starts local processes.
            pauses_s: pauses before the second and each further attempt; None means `BACKOFF_S`.
            idle_s: time without work before a slot releases the GPU; None means `_IDLE_S`.
        """
        self._hire = hire or LocalWorker
        builders = sum(slot.part is GradePart.BEGIN for slot in slots)
        starting = builders if hire is not None else builders // _STARTING_PART
        self._starting = threading.BoundedSemaphore(max(starting, _LEAST_STARTING))
        self._tasks = tasks
        self._places = Counter(slot.part for slot in slots)
        self._fail_fast = fail_fast
        self._pauses_s = tuple(BACKOFF_S if pauses_s is None else pauses_s)
        self._idle_s = _IDLE_S if idle_s is None else idle_s
        self.events: queue.SimpleQueue[TaskBegan | TaskEnded | SlotDrained] = queue.SimpleQueue()
        self.states = tuple(map(SlotState, slots))
        self._options = options
        self._logs = logs
        self._counting = threading.Lock()
        self._changing = threading.Lock()
        self._stopping = threading.Event()
        self.workers: dict[int, WorkerHandle] = {}
        """Workers by slot. Only the pool changes the workers."""
        self._cancelled: set[int] = set()
        self._in_turn: set[int] = set()
        self._ready = GpuQueue(builders, room=_ROOM * builders)
        # Daemon threads: at an interrupt one may be blocked in `take`, waiting for a line from another process.
        self._threads = [
            threading.Thread(target=self._work, args=(number, slot), name=f"slot-{number}", daemon=True)
            for number, slot in enumerate(slots)
        ]

    def __enter__(self) -> Self:
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:  # No `__exit__` follows an interrupt, and workers may have started.
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changing:
            self._stopping.set()
            self._tasks.close()
            self._ready.close()
            workers = list(self.workers.values())
        for worker in workers:  # interrupt all before waiting for any
            worker.interrupt()
        for worker in workers:
            worker.wait()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(_JOIN_S)

    def cancel(self, task: Task) -> None:
        """End a slot's task, and the worker too. The caller knows that a slot has the task, until its `TaskEnded`."""
        if self._ready.remove(task) is not None:
            self._end(0, task, _CANCELLED, 1, time.monotonic())
            return
        with self._changing:
            self._cancelled.add(id(task))
            for number, state in enumerate(self.states):
                if state.task is task and number in self.workers:
                    self.workers[number].interrupt()

    def forget(self, task: Task) -> None:
        """Forget that an ended task was cancelled."""
        self._cancelled.discard(id(task))

    def _work(self, number: int, slot: Slot) -> None:
        error: BaseException | None = None
        try:
            if slot.part is GradePart.FINISH:
                self._finish_all(number, slot)
            else:
                self._begin_all(number, slot)
        except NoWorker as no_worker:
            error = self._error_without_machine(slot, no_worker)
        except BaseException as raised:  # noqa: BLE001 - the reader of the events raises it again
            error = raised
        finally:
            if slot.part is GradePart.BEGIN:
                self._ready.builder_left()
            with contextlib.suppress(BaseException):
                self._dismiss(number)
            self.events.put(SlotDrained(number, error))

    def _begin_all(self, number: int, slot: Slot) -> None:
        """Take new tasks until the end. A slot that only builds passes built tasks to the GPU queue.

        A slot without a worker takes a task when a worker may start. Until then, ready workers take all tasks.
        """
        state = self.states[number]
        try:
            while True:
                self._await_turn(number, slot)
                match self._tasks.take(state):
                    case None:
                        return
                    case Errand.PREPARE:
                        self._prepare(number, slot)
                    case Errand.RELEASE:
                        self._dismiss(number)
                    case task:
                        self._await_turn(number, slot)  # The wait for a task may have been longer than for the turn.
                        with self._ready.coming(task.context):
                            if not self._begin(number, slot, task):
                                return
                self._end_turn(number)
        finally:
            self._end_turn(number)

    def _begin(self, number: int, slot: Slot, task: Task) -> bool:
        """Make the slot's part of a grade. Return False if the pool is stopping."""
        since_s = time.monotonic()
        self.states[number].task = task
        try:
            outcome = self._attempt(number, slot, task, None)
        except NoWorker:
            self._tasks.put_back(task)
            raise
        finally:
            self.states[number].task = None
            self._tasks.done()
        if outcome is None:
            return False
        if isinstance(outcome.result, Built):
            self._began(number, task, "built")
            self._ready.put(BuiltTask(task, outcome.result.begun, outcome.attempts, since_s))
        else:
            self._end(number, task, outcome.result, outcome.attempts, since_s)
        return True

    def _error_without_machine(self, slot: Slot, no_worker: NoWorker) -> BaseException | None:
        """Return the error of a slot that lost its machine: None while another slot makes the same part."""
        with self._counting:
            self._places[slot.part] -= 1
            return None if self._places[slot.part] else InfraError(f"no machine is left to grade on: {no_worker}")

    def _finish_all(self, number: int, slot: Slot) -> None:
        """Finish built tasks until all are done. An idle slot releases the GPU after a grade."""
        self._prepare(number, slot)
        state, context = self.states[number], None
        while not self._ready.over:
            waiting = self._ready.take(context, self._idle_s, slot.gpu)
            if waiting is None:
                if context is not None:  # Before the first grade, the worker has no context on the GPU.
                    self._dismiss(number)
                continue
            state.task, context = waiting.task, waiting.task.context
            try:
                outcome = self._attempt(number, slot, waiting.task, waiting.begun)
            except NoWorker:
                self._ready.put_back(waiting)
                raise
            finally:
                state.task = None
                self._ready.done()
            if outcome is None:
                return
            if isinstance(outcome.result, Built):
                raise TypeError("what is finished is graded")
            self._end(number, waiting.task, outcome.result, waiting.attempts + outcome.attempts - 1, waiting.since_s)

    def _prepare(self, number: int, slot: Slot) -> None:
        """Start the slot's worker before a task needs one, and wait until the worker can grade."""
        state = self.states[number]
        state.is_preparing = True
        with contextlib.suppress(NoWorker, OSError):  # A task then finds out, and stays for another slot.
            worker = self._worker(number, slot)
            if worker is not None and not worker.prepare(PrepareWorker(self._options.for_worker(slot.gpu))):
                self._dismiss(number)
        state.is_preparing, state.used_s = False, time.monotonic()

    def _end(self, number: int, task: Task, result: GradeFinished | NotGraded, attempts: int, since_s: float) -> None:
        if self._fail_fast and not _correct(result):
            # Before the slot takes another task, and before the reader sees the event.
            self._tasks.end()
        now_s = time.monotonic()
        self.events.put(TaskEnded(number, task, result, attempts, now_s - since_s, now_s))

    def _began(self, number: int, task: Task, stage: str, detail: str = "") -> None:
        self.events.put(TaskBegan(number, task, stage, time.monotonic(), detail))

    def _attempt(self, number: int, slot: Slot, task: Task, begun: Begun | None) -> "_AttemptedGrade | None":
        """Make the slot's part of a grade, with retries after failures of the machine. None if the pool is stopping."""
        options = self._options if task.options is None else task.options
        order = WorkerOrder(
            problem=task.problem,
            submission=task.submission if isinstance(task.submission, Submission) else None,
            unread=task.submission if isinstance(task.submission, Unread) else None,
            options=options.for_worker(slot.gpu),
            part=slot.part,
            begun=begun,
            facts=slot.facts,
        )
        self._began(number, task, "start")
        for attempt, pause_s in enumerate((*self._pauses_s, None), start=1):
            if id(task) in self._cancelled:
                self._dismiss(number)
                return _AttemptedGrade(_CANCELLED, attempt)
            worker = self._worker(number, slot, task)
            if worker is None:
                return None
            result = self._result(number, worker, order, task)
            if self._stopping.is_set():
                return None
            repeats = worth_another(result)
            if repeats:
                self._dismiss(number)
            repeats = repeats or (attempt == 1 and may_be_the_machines(result))
            if not repeats or pause_s is None:
                return _AttemptedGrade(result, attempt)
            self._began(number, task, "again", "in a new process")
            if self._stopping.wait(pause_s):
                return None
        raise AssertionError("the last attempt ends it")

    def _result(self, number: int, worker: WorkerHandle, order: WorkerOrder, task: Task) -> Result:
        state = self.states[number]
        state.task, state.context, state.problem = task, task.context, task.problem.name
        result = worker.grade(order, lambda stage: self._on_stage(number, task, stage))
        state.grades, state.used_s = state.grades + 1, time.monotonic()
        with self._changing:
            if id(task) not in self._cancelled:
                state.task = None  # From now on, `cancel` leaves the worker alone.
                return result
        self._dismiss(number)
        return _CANCELLED

    def _on_stage(self, number: int, task: Task, stage: StageEntered) -> None:
        """Report the stage of a grade, which proves the start of the worker."""
        self._end_turn(number)
        self._began(number, task, stage.name, stage.detail)

    def _await_turn(self, number: int, slot: Slot) -> None:
        """Wait until the slot may start a worker, if needed. The turn ends with the first stage or the first task.

        Only building workers wait: GPUs need the first build early.
        """
        with self._changing:
            needs_turn = slot.part is GradePart.BEGIN and number not in self.workers and number not in self._in_turn
        if needs_turn and self._starting.acquire(timeout=_START_S):
            self._in_turn.add(number)

    def _end_turn(self, number: int) -> None:
        if number in self._in_turn:
            self._in_turn.remove(number)
            self._starting.release()

    def _worker(self, number: int, slot: Slot, task: Task | None = None) -> WorkerHandle | None:
        """Return the slot's worker for a task, and start one if needed. None if the pool is stopping.

        The worker of a cancelled task is interrupted.
        """
        with self._changing:
            if self._stopping.is_set():
                return None
            worker = self.workers.get(number)
        if worker is None:
            log = self._logs / f"worker-{number}.log" if self._logs is not None else None
            worker = self._hire(slot, log)  # Outside the lock: hiring may take long, and other slots must not wait.
            self.states[number].started()
        with self._changing:
            if not self._stopping.is_set():
                self.workers[number] = worker
                if task is not None and id(task) in self._cancelled:
                    worker.interrupt()
                return worker
        worker.close()
        return None

    def _dismiss(self, number: int) -> None:
        with self._changing:
            worker = self.workers.pop(number, None)
        self.states[number].dismissed()
        if worker is not None:
            worker.close()


class _AttemptedGrade(NamedTuple):
    result: Result
    attempts: int


def _correct(result: GradeFinished | NotGraded) -> bool:
    return isinstance(result, GradeFinished) and result.card.status is Status.CORRECT
