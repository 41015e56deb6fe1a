"""A grader for programs with a sequence of submissions: workers persist between submissions.

with Grader(device="cuda") as grader:
    card = grader.grade("relu", source)              # from any thread
    future = grader.submit("relu", source)           # a concurrent.futures.Future
    cards = grader.grade_many(candidates)            # a list, in the order of the candidates

async with Grader() as grader:
    card = await grader.grade_async("relu", source)
"""

import atexit
import functools
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

from msgspec.structs import replace

from evaluator.api.any_grader import AnyGrader, OnProgress, cards_of
from evaluator.api.candidate import Candidate, submission_of, task_for
from evaluator.api.ready import places
from evaluator.api.scorecard import Scorecard
from evaluator.batch.runs.problems import Problems, ProblemText
from evaluator.batch.runs.tasks import Task, renamed
from evaluator.batch.workers.messages import GradeFinished
from evaluator.batch.workers.ray_cluster import cluster_places
from evaluator.batch.workers.slots import gpus_for, slots_for
from evaluator.batch.workers.task_grader import TaskGrader, infra_card
from evaluator.batch.workers.worker_handle import Hire, Slot
from evaluator.batch.workers.worker_pool import TaskEnded
from evaluator.catalog.kernelbench import read_text as read_problem_text
from evaluator.errors import InfraError, UsageError
from evaluator.grade_options import GradeOptions, entry_given, given, read_options, with_options
from evaluator.grading.resolved_request import options_for, remarked
from evaluator.records import Finding
from evaluator.signatures.keys import SigningKey, signing_key
from evaluator.signatures.signing import signed

_MOST_CHOICES = 8
"""Limit of stored readings of the problems, each for other sizes or cases."""


class GradingSetup(NamedTuple):
    """Options, slots of this machine, problems and, if configured, the key that signs cards."""

    options: GradeOptions
    slots: list[Slot]
    problems: Problems
    key: SigningKey | None


def setup_for(named: Mapping[str, Any], jobs: int | None, *, on_cluster: bool = False) -> GradingSetup:
    """Parse options by name.

    Args:
        named: the options.
        jobs: number of concurrent grades; None takes the limit of the device.
        on_cluster: whether other machines grade: this machine then has no slots, and may lack a GPU.

    Raises:
        TypeError: the name of an option is unknown.
        UsageError: the value of an option is unknown.
        InfraError: this machine has no GPU.
    """
    options = options_for(named).options
    slots = [] if on_cluster else slots_for(options.device, jobs, gpus_for(options))
    key = signing_key(options.signing_key, sandboxed=options.is_sandboxed)
    return GradingSetup(options, slots, _problems_of(options), key)


def _problems_of(options: GradeOptions) -> Problems:
    return Problems(options.problems, options.sizes, entry=options.entry, cases=options.case)


class Grader(AnyGrader):
    """Grader of submissions, with as many concurrent grades as the device allows.

    Grades between `start` and `close`; a context manager, sync or async, calls both. All methods that grade may be
    called from any thread.
    """

    @with_options
    def __init__(
        self, *, jobs: int | None = None, ready: bool | None = None, ray: str | None = None, **options: Any
    ) -> None:
        """Read the options. Workers start with `start`.

        Args:
            jobs: number of concurrent grades (on cuda: builds); None takes the limit of the device.
            ready: whether a ready judge (`warpgrade serve`), if running, makes the grades; None means yes, unless the
                environment variable WARPGRADE_READY is 0.
            ray: address of a Ray cluster, whose machines make the grades instead: `auto` for a running one of this
                machine, `local` for a new one.
            **options: see `GradeOptions`.

        Raises:
            TypeError: the name of an option is unknown.
            UsageError: the value of an option is invalid, or an option excludes another.
            InfraError: the machine has no GPU.
        """
        if ray is not None and ready:
            raise UsageError("a Ray cluster and the ready judge exclude each other", hint="omit ready=True")
        setup = setup_for(options, jobs, on_cluster=ray is not None)
        self._options, self._slots, self._problems, self._key = setup
        self._named = {**given(options), "device": self._options.device, "speedup_of": None}
        self._problems_at = functools.lru_cache(_MOST_CHOICES)(_problems_of)
        self._jobs, self._ray = jobs, ray
        self._hire: Hire | None = None
        self._cluster = ExitStack()
        if ray is None:
            self._slots, self._hire = places(self._options, self._slots, jobs=jobs, ready=ready)
        self._changing = threading.Lock()
        self._tasks: TaskGrader | None = None

    def start(self) -> Self:
        """Start the workers, and return the grader. Without `close`, the workers end with the program.

        Raises:
            RuntimeError: the grader has started already.
            UsageError: Ray is not installed, or an option has no effect on a cluster.
            InfraError: no Ray cluster answers, or the cluster lacks the resources to grade.
        """
        with self._changing:
            if self._tasks is not None:
                raise RuntimeError("this Grader has started already")
            if self._ray is not None:
                self._slots, self._hire = cluster_places(self._ray, self._options, self._jobs, self._cluster)
            self._tasks = TaskGrader(self._slots, self._options, hire=self._hire)
        atexit.register(self.close)
        return self

    def close(self) -> None:
        """End all workers at once and cancel unfinished grades. A second call has no effect."""
        with self._changing:
            tasks, self._tasks = self._tasks, None
        atexit.unregister(self.close)
        if tasks is not None:
            tasks.close()
        self._cluster.close()

    @property
    def at_once(self) -> int:
        """Number of submissions to hand in ahead: two for each slot."""
        return 2 * len(self._slots)

    @property
    def failure(self) -> InfraError | None:
        """The failure of the machine that ended the workers: all further cards are of status `infra_error`."""
        failure = None if self._tasks is None else self._tasks.failure
        return failure if isinstance(failure, InfraError) else None

    def refusal_of(self, problem: str | ProblemText) -> UsageError | None:
        """Return the error of `submit` for a problem, as far as known without running code of the problem.

        Raises:
            ProblemError: the text is no problem.
        """
        if isinstance(problem, ProblemText):
            read_problem_text(problem.source, problem.name)
            return None
        return self._problems.refusal_of(problem)

    def submit(
        self, problem: str | ProblemText, source: str | Path | None, *, name: str = "candidate"
    ) -> Future[Scorecard]:
        """Submit Python text, or a model's answer with code. The future returns the scorecard.

        A failure of the machine is a card of status `infra_error`, also if no worker is left.

        Args:
            problem: the name or the text of a problem.
            source: the submission, as text or as the `Path` of a file or folder; None counts as an empty answer.
            name: name of the submission on the card.

        Raises:
            TypeError: the source is neither text nor path.
            ProblemNotFound: no problem has the name; the hint has the nearest names.
            UsageError: the problem has no such size, or the text is no problem.
            RuntimeError: the grader has not started, or is closed.
        """
        return self.submit_with(problem, source, name=name)

    def submit_with(
        self,
        problem: str | ProblemText,
        source: str | Path | None,
        *,
        name: str = "candidate",
        on_stage: Callable[[str], object] | None = None,
        remarks: tuple[Finding, ...] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Future[Scorecard]:
        """Submit like `submit`, with further findings for the card.

        `on_stage` is called with the name of each stage, in a thread of the grader, and must not raise. `options` are
        those of this grade that differ from the grader's: `case`, `size`, `budget_s`, `stop_at_failure`, `profile`.

        Raises:
            UsageError: the value of an option is invalid, or contradicts another option.
        """
        chosen, problems = None, self._problems
        if options:
            chosen = replace(read_options({**self._named, **options}), speedup_of=self._options.speedup_of)
            problems = self._problems_at(replace(self._options, size=chosen.size, case=chosen.case))
        task = task_for(Candidate(problem, source, name), problems)._replace(options=chosen)
        return self._submitted(task._replace(submission=remarked(task.submission, remarks)), on_stage)

    def infra_card(
        self, problem: str | ProblemText, source: str | Path | None, *, name: str = "candidate", reason: str
    ) -> Scorecard:
        """Return a card of status `infra_error` with the given reason, without a grade. Raises like `submit`."""
        return self._infra_card(task_for(Candidate(problem, source, name), self._problems), reason, self._slots[0])

    def grade_many(self, candidates: Iterable[Candidate], *, on_progress: OnProgress | None = None) -> list[Scorecard]:
        """Grade candidates concurrently. Return the cards in the order of the candidates.

        Every candidate has a card, after a failure of the machine a card of status `infra_error`. All candidates are
        read before the first grade: an unknown problem raises without any grade. Equal code for the same problem is
        graded once. Raises like `submit`.

        Args:
            candidates: the submissions.
            on_progress: called with a `Progress` after each grade, in this thread and in order of completion. An
                exception of the callback cancels the unfinished grades, and is raised. Without a callback, nothing is
                reported or printed.
        """
        candidates = list(candidates)
        tasks = [task_for(candidate, self._problems) for candidate in candidates]
        graded: dict[str, Future[Scorecard]] = {}
        futures = []
        for task in tasks:
            if task.key is None or (equal := graded.get(task.key)) is None:
                future = self._submitted(task)
                if task.key is not None:
                    graded[task.key] = future
            else:
                future = self._copied(equal, task)
            futures.append(future)
        return cards_of(candidates, futures, on_progress)

    def _copied(self, equal: Future[Scorecard], task: Task) -> Future[Scorecard]:
        """Return the future of a task with the code of another task: a copy of its card, under the task's name."""
        copy: Future[Scorecard] = Future()

        def give(graded: Future[Scorecard]) -> None:
            if graded.cancelled():
                copy.cancel()
            elif not copy.set_running_or_notify_cancel():
                return
            elif (error := graded.exception()) is not None:
                copy.set_exception(error)
            else:
                card = renamed(graded.result(), task.name, task.submission.origin)
                copy.set_result(Scorecard.of(signed(card, self._key)))

        equal.add_done_callback(give)
        return copy

    def _submitted(self, task: Task, on_stage: Callable[[str], object] | None = None) -> Future[Scorecard]:
        graded: Future[Scorecard] = Future()

        def give(ended: Future[TaskEnded]) -> None:
            if ended.cancelled():
                graded.cancel()
            elif graded.set_running_or_notify_cancel():
                try:
                    graded.set_result(self._card(task, ended))
                except BaseException as error:  # noqa: BLE001 - a caller waits for the future, in any case
                    graded.set_exception(error)

        tasks = self._tasks
        if tasks is None:
            raise RuntimeError("a Grader grades between start() and close(), or in the block of `with`")
        tasks.submit(task, None if on_stage is None else lambda stage: on_stage(stage.name)).add_done_callback(give)
        return graded

    def _card(self, task: Task, ended: Future[TaskEnded]) -> Scorecard:
        """Return the card of a task. A failure of the machine is a card too, and the caller keeps the other cards."""
        try:
            event = ended.result()
        except InfraError as error:
            return self._infra_card(task, str(error), self._slots[0])
        if isinstance(event.result, GradeFinished):
            return Scorecard.of(signed(event.result.card, self._key))
        return self._infra_card(task, event.result.reason, self._slots[event.slot], event.result.hint)

    def _infra_card(self, task: Task, reason: str, slot: Slot, hint: str = "") -> Scorecard:
        return Scorecard.of(signed(infra_card(task, self._options, reason, slot, hint), self._key))


@with_options
def grade(
    problem: str | ProblemText, source: str | Path | None, *, ready: bool | None = None, **options: Any
) -> Scorecard:
    """Grade a submission in a separate process, or by the ready judge.

    Args:
        problem: the name or the text of a problem.
        source: Python text that defines ModelNew, a language model's answer with the code, or the `Path` of a file or
            of a folder with a submission.toml; None counts as empty.
        ready: see `Grader`.
        **options: see `GradeOptions`.

    Returns:
        The scorecard. The status is `infra_error` after a failure of the machine.

    Raises:
        TypeError: the name of an option is unknown, or the source is not text.
        ProblemNotFound: no problem has the name.
        UsageError: the value of an option is invalid.
        InfraError: the machine has no GPU.
    """
    submission = submission_of(Candidate(problem, source), entry_given(options))
    chosen, remarks = options_for(options, submission)
    with Grader(jobs=1, ready=ready, **{**options, "device": chosen.device}) as grader:
        return grader.submit_with(problem, source, remarks=remarks).result()
