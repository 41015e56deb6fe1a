"""Grades of `--watch`: workers, or the ready judge, stay between the grades."""

import queue
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TextIO

from evaluator.api.ready import places
from evaluator.batch.runs.tasks import Task
from evaluator.batch.workers.messages import GradeFinished, StageEntered
from evaluator.batch.workers.slots import slots_for
from evaluator.batch.workers.task_grader import TaskGrader, infra_card
from evaluator.batch.workers.worker_handle import Slot
from evaluator.batch.workers.worker_pool import NO_STAGES, TaskEnded
from evaluator.catalog import find_problem
from evaluator.catalog.folder import PROBLEM_FILE, REFERENCE_FILE
from evaluator.errors import ExitCode, InfraError, UsageError
from evaluator.grade_options import GradeOptions
from evaluator.grading.request import GradeRequest, stages_of
from evaluator.records import Scorecard
from evaluator.report.progress_line import progress_on
from evaluator.submission.folder import possible_files
from evaluator.submission.read import STDIN
from evaluator.text import one_line

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
        messages: queue.SimpleQueue[StageEntered | Future[TaskEnded]] = queue.SimpleQueue()
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
                    if isinstance(message, StageEntered) and message.name not in NO_STAGES:
                        progress.stage(message.name, message.detail)
        try:
            ended = future.result()
        except InfraError as error:
            return infra_card(task, options, str(error), Slot())
        if isinstance(ended.result, GradeFinished):
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


class WatchedFiles(NamedTuple):
    """Path of the submission, a function that lists all files, and a description."""

    submission: Path
    paths: Callable[[], Sequence[Path]]
    what: str


def files_of(named: Mapping[str, Any]) -> WatchedFiles:
    """Return the files of a grade with the given arguments.

    Raises:
        UsageError: the arguments name no file of a submission, or no problem.
    """
    if named["replay"] is not None:
        raise UsageError("--watch has no effect with --replay: a card does not change", hint="omit one of the two")
    if named["submission"] == STDIN:
        raise UsageError("--watch needs a file: - reads standard input once", hint="name the submission's file")
    if named["problem"] is None or named["submission"] is None:
        raise UsageError("--watch needs PROBLEM and SUBMISSION")
    submission = Path(named["submission"])
    problem = Path(find_problem(named["problem"], named["problems"]).path)
    of_problem = [problem / name for name in (PROBLEM_FILE, REFERENCE_FILE)] if problem.is_dir() else [problem]
    baseline = [] if named["speedup_of"] is None else [Path(named["speedup_of"])]

    def paths() -> list[Path]:
        files = [
            file for path in (submission, *baseline) for file in (possible_files(path) if path.is_dir() else [path])
        ]
        return [*files, *of_problem]

    return WatchedFiles(submission, paths, one_line(f"{submission} and {problem}", 160))
