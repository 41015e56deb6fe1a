"""Worker pool behind futures: programs and servers submit tasks from any thread."""

import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.batch.runs.tasks import Task
from evaluator.batch.workers.messages import StageEntered, WorkerOrder
from evaluator.batch.workers.queues import TaskQueue
from evaluator.batch.workers.worker_handle import Hire, Slot
from evaluator.batch.workers.worker_pool import SlotDrained, TaskBegan, TaskEnded, WorkerPool
from evaluator.findings import Code, finding
from evaluator.grade_options import GradeOptions
from evaluator.grading import pipeline
from evaluator.grading.request import Unread
from evaluator.progress import Silent
from evaluator.records import Scorecard, Status, SubmissionRef
from evaluator.submission.read import Submission

OnStage = Callable[[StageEntered], object]
"""Callback for the stages of a grade, in a thread of the grader. Must not raise."""
_NO_SLOT = StageEntered(name="wait", detail="other grades")


class _PendingTask(NamedTuple):
    task: Task
    future: Future[TaskEnded]
    on_stage: OnStage | None


class TaskGrader:
    """Workers, local or remote, between creation and `close`."""

    def __init__(
        self,
        slots: Sequence[Slot],
        options: GradeOptions,
        *,
        hire: Hire | None = None,
        spares: int = 0,
        idle_s: float | None = None,
        pauses_s: Sequence[float] | None = None,
    ) -> None:
        """Start a thread for each slot.

        Args:
            slots: the slots.
            options: options of all tasks without `options`.
            hire: factory of a slot's worker; None starts local processes.
            spares: number of free slots with a worker after `prepare`.
            idle_s: time without work before the end of a slot's worker; None means never, except on a GPU.
            pauses_s: see `WorkerPool`.
        """
        self._tasks = TaskQueue(spares=spares, idle_s=math.inf if idle_s is None else idle_s)
        self._changing = threading.Lock()
        self._pending: dict[int, _PendingTask] = {}
        self.failure: BaseException | None = None
        """Error at the end of the workers; the futures of all further tasks have the error."""
        self._closed = False
        pool = WorkerPool(slots, options, self._tasks, hire=hire, idle_s=idle_s, pauses_s=pauses_s)
        self.pool = pool.__enter__()
        threading.Thread(target=self._read, name="grader", daemon=True).start()

    def submit(self, task: Task, on_stage: OnStage | None = None) -> Future[TaskEnded]:
        """Submit a task. The future is cancelled by `close`, and has the error of failed workers."""
        pending = _PendingTask(task, Future(), on_stage)
        with self._changing:
            failure, is_closed = self.failure, self._closed
            if failure is None and not is_closed:
                self._pending[id(task)] = pending
        if is_closed:
            pending.future.cancel()
        elif failure is not None:
            pending.future.set_exception(failure)
        elif not self._tasks.put(task) and on_stage is not None:
            on_stage(_NO_SLOT)
        return pending.future

    def cancel(self, task: Task) -> None:
        """End a task. The future is cancelled, or of a task in progress ends after the worker, without a card."""
        with self._changing:
            pending = self._pending.get(id(task))
            if pending is None:
                return
            if not self._tasks.remove(task):
                self.pool.cancel(task)
                return
            del self._pending[id(task)]
        pending.future.cancel()

    def prepare(self) -> None:
        """Start workers in the background, until enough are ready."""
        self._tasks.prepare()

    def close(self) -> None:
        """End all workers at once, and cancel the futures. A second call has no effect."""
        with self._changing:
            self._closed = True
        self.pool.__exit__(None, None, None)
        for pending in self._all_pending():
            pending.future.cancel()

    def _read(self) -> None:
        open_slots = len(self.pool.states)
        while open_slots:
            match self.pool.events.get():
                case TaskEnded() as ended:
                    with self._changing:
                        pending = self._pending.pop(id(ended.task), None)
                        self.pool.forget(ended.task)
                    if pending is not None and pending.future.set_running_or_notify_cancel():
                        pending.future.set_result(ended)
                case TaskBegan(task=task) as began:
                    pending = self._pending.get(id(task))
                    if pending is not None and pending.on_stage is not None:
                        pending.on_stage(StageEntered(name=began.stage, detail=began.detail))
                case SlotDrained(error=error):
                    open_slots -= 1
                    if error is not None:
                        self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Fail all futures after the loss of the workers; no worker would finish the tasks."""
        with self._changing:
            if self._closed:
                return
            self.failure = self.failure or error
        for pending in self._all_pending():
            if pending.future.set_running_or_notify_cancel():
                pending.future.set_exception(error)

    def _all_pending(self) -> list[_PendingTask]:
        with self._changing:
            pending, self._pending = list(self._pending.values()), {}
        return pending


def infra_card(task: Task, options: GradeOptions, reason: str, slot: Slot, hint: str = "") -> Scorecard:
    """Return a card for a failure of the slot's machine, without any statement about the submission.

    `hint` replaces the next step of X602. The pipeline makes the card, as for an unreadable submission.
    No code runs and PyTorch is not imported.
    """
    failure = finding(Code.JUDGE_FAILED, reason, next_step=hint or None)
    submission = task.submission
    unread = Unread(name=task.name, origin=submission.origin, finding=failure)
    order = WorkerOrder(task.problem, None, unread, options.for_worker(slot.gpu), facts=slot.facts)
    card = replace(pipeline.grade(order.request(), Silent()), status=Status.INFRA_ERROR)
    if not isinstance(submission, Submission):
        return card
    graded = SubmissionRef(
        name=task.name,
        origin=submission.origin,
        sha256=submission.sha256,
        source=submission.source,
        extracted_from_answer=submission.extracted_from_answer,
    )
    return replace(card, submission=graded)
