"""Grades of `--watch`: workers, or the ready judge, stay between the grades."""

import queue
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Self, TextIO

from evaluator.api.ready import places
from evaluator.batch.runs.tasks import Task
from evaluator.batch.workers.infra_card import infra_card
from evaluator.batch.workers.messages import Graded, Stage
from evaluator.batch.workers.slots import slots_for
from evaluator.batch.workers.task_grader import TaskGrader
from evaluator.batch.workers.worker_handle import Slot
from evaluator.batch.workers.worker_pool import NO_STAGES, TaskEnded
from evaluator.commands.shell.watch import POLL_S
from evaluator.errors import InfraError
from evaluator.grade_options import GradeOptions
from evaluator.grading.request import GradeRequest
from evaluator.grading.stage_plan import stages_of
from evaluator.records import Scorecard
from evaluator.report.progress_line import progress_on


class WatchedGrades:
    """Grades in sequence; a context manager ends all workers."""

    def __init__(self, has_changed: Callable[[], bool], stream: TextIO) -> None:
        """Give up a grade when `has_changed` returns true; write progress to `stream`."""
        self._stream = stream
        self._has_changed = has_changed
        self._grader: TaskGrader | None = None
        self._key: tuple[object, ...] = ()
        self.was_given_up = False
        """Whether a change of the files ended the last grade."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._grader is not None:
            self._grader.close()

    def card_of(self, request: GradeRequest, *, ready: bool, quiet: bool) -> Scorecard | None:
        """Return the card of a grade; None after a change of the files, which ends the grade."""
        terms, submission = request.terms, request.submission
        options = terms.options.for_worker(None)
        task = Task(terms.problem, submission.name, submission, options=options)
        grader = self._grader_for(request, ready=ready)
        messages: queue.SimpleQueue[Stage | Future[TaskEnded]] = queue.SimpleQueue()
        future = grader.submit(task, messages.put)
        future.add_done_callback(messages.put)
        with progress_on(self._stream, quiet=quiet, stages=stages_of(terms)) as progress:
            while not future.done():
                try:
                    message = messages.get(timeout=POLL_S)
                except queue.Empty:
                    self.was_given_up = self._has_changed()
                    if self.was_given_up:
                        grader.cancel(task)
                        return None
                else:
                    if isinstance(message, Stage) and message.name not in NO_STAGES:
                        progress.stage(message.name, message.detail)
        try:
            ended = future.result()
        except InfraError as error:
            return infra_card(task, options, str(error), Slot())
        if isinstance(ended.result, Graded):
            return ended.result.card
        return infra_card(task, options, ended.result.reason, Slot(), ended.result.hint)

    def _grader_for(self, request: GradeRequest, *, ready: bool) -> TaskGrader:
        """Return the workers of the last grade, or others for another device, or after a failure."""
        terms = request.terms
        gpus = [] if terms.gpu is None else [terms.gpu.uuid]
        key = (terms.options.device, *gpus, ready)
        if self._grader is not None and (key != self._key or self._grader.failure is not None):
            self._grader.close()
            self._grader = None
        if self._grader is None:
            slots, hire = places(terms.options, slots_for(terms.options.device, 1, gpus), jobs=1, ready=ready)
            self._grader = TaskGrader(slots, GradeOptions(device=terms.options.device), hire=hire)
            self._key = key
        return self._grader
