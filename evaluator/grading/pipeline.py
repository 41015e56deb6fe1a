"""Pipeline of one grade: read, build, check, time. The caller writes the card.

Each stage runs the submission in a new process from the fork server, which ends with the stage. The reference is timed
in separate processes, before and after the submission.
"""

import contextlib
import logging
import os
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from evaluator.catalog import sized_source
from evaluator.deadline import Deadline, Guard
from evaluator.errors import JudgeFailed, WarpgradeError
from evaluator.findings import Code, finding
from evaluator.grading import single_grade
from evaluator.grading.card import card_of
from evaluator.grading.card_remarks import remarks_on
from evaluator.grading.request import Begun, GradeRequest, Unread
from evaluator.grading.resources import nothing_collected
from evaluator.grading.run_until_deadline import LastResort, in_time
from evaluator.interrupts import held_back
from evaluator.judge.runners.fork_servers import fork_server_for
from evaluator.progress import Progress, Stopwatch
from evaluator.records import (
    Finding,
    Outcome,
    Scorecard,
    Seeds,
    Status,
)
from evaluator.report.layout.text import printable
from evaluator.submission.model_new import can_define_model_new
from evaluator.submission.read import Submission

if TYPE_CHECKING:
    from evaluator.judge.context.context_pool import ContextPool

_log = logging.getLogger("warpgrade")
_FAULT_CHARACTERS = 1000


def grade(
    request: GradeRequest,
    progress: Progress,
    context_pool: "ContextPool | None" = None,
    begun: Begun | None = None,
    last_resort: LastResort | None = None,
) -> Scorecard:
    """Grade one submission. Only a broken problem or machine raises; failures of the submission are in the card.

    Args:
        request: submission, problem and options.
        progress: receives each stage.
        context_pool: shares state between grades; None for a single grade.
        begun: result of `begin` for the same request on this machine; None starts from the beginning.
        last_resort: ends a process that is stuck after the deadline. Without a last resort, a grade ends after the
            current
        operation of this thread.

    Raises:
        UsageError: the problem is broken, or exceeds the memory of this machine.
        InfraError: this machine has no compiler or no sandbox.
    """
    stopwatch = _stopwatch(request, progress, begun)
    outcome, seeds = in_time(
        stopwatch,
        lambda guard: _outcome(request, stopwatch, context_pool, begun, guard),
        lambda outcome: card_of(request, outcome, None, stopwatch),
        last_resort,
    )
    return card_of(request, outcome, seeds, stopwatch)


def begin(
    request: GradeRequest,
    progress: Progress,
    context_pool: "ContextPool | None" = None,
    last_resort: LastResort | None = None,
) -> Begun | Scorecard:
    """Run the stages without a GPU. Return a scorecard if they decide the verdict. Raises like `grade`."""
    stopwatch = _stopwatch(request, progress, None)
    outcome, seeds = in_time(
        stopwatch,
        lambda guard: _outcome(request, stopwatch, context_pool, None, guard, built_only=True),
        lambda outcome: card_of(request, outcome, None, stopwatch),
        last_resort,
    )
    if outcome.reason is None:
        return Begun(outcome=outcome, lap=stopwatch.lap(), submission_s=stopwatch.deadline.submission_s)
    return card_of(request, outcome, seeds, stopwatch)


def _stopwatch(request: GradeRequest, progress: Progress, begun: Begun | None) -> Stopwatch:
    """Start the stopwatch of a grade, or continue from `begun`."""
    if begun is None:
        return Stopwatch(progress, None, Deadline(request.terms.options.limit_s))
    deadline = Deadline(request.terms.options.limit_s, spent_s=begun.lap.wall_s, submission_s=begun.submission_s)
    return Stopwatch(progress, begun.lap, deadline)


def _outcome(
    request: GradeRequest,
    stopwatch: Stopwatch,
    context_pool: "ContextPool | None",
    begun: Begun | None,
    guard: Guard,
    *,
    built_only: bool = False,
) -> tuple[Outcome, Seeds | None]:
    sized_source(request.terms.problem, request.terms.size)  # Report a missing size before any other failure.
    match request.submission:
        case Unread(finding=reason):
            return Outcome().failed(_unread_status(reason), reason), None
        case Submission(source=source) as submission if not can_define_model_new(source):
            what = "the name does not occur in the text" if source.strip() else "the text is empty"
            reason = finding(Code.NO_MODEL_NEW, f"the submission defines no class ModelNew: {what}")
            outcome = Outcome(findings=list(submission.findings))
            return outcome.failed(Status.BUILD_ERROR, reason), None
        case Submission() as submission:
            outcome, seeds = _judged(
                request, submission.source, stopwatch, context_pool, begun, guard, built_only=built_only
            )
            if built_only and outcome.reason is None:
                return outcome, seeds
            findings = [
                *submission.findings,
                *remarks_on(outcome),
                *outcome.findings,
            ]  # The terminal shows only the first few.
            return replace(outcome, findings=findings), seeds


def _judged(
    request: GradeRequest,
    source: str,
    stopwatch: Stopwatch,
    context_pool: "ContextPool | None",
    begun: Begun | None,
    guard: Guard,
    *,
    built_only: bool,
) -> tuple[Outcome, Seeds | None]:
    # The import of torch starts here; cheap commands return earlier. OpenMP threads must sleep while waiting, not spin,
    # because judge and runner share the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if context_pool is not None:
        guard.kill_with(context_pool.kill_all)
        return _judged_by(lambda: context_pool, request, source, stopwatch, begun, built_only=built_only)
    # Start the fork server first: its import of torch overlaps the judge's.
    terms = request.terms
    uuid = None if terms.gpu is None else terms.gpu.uuid
    with contextlib.ExitStack() as own:
        fork_server = own.enter_context(fork_server_for(terms.device, uuid, terms.options.sandbox_mode, terms.threads))
        guard.kill_with(fork_server.condemn_all)
        gpu_session = None if terms.gpu is None or built_only else single_grade.reach_for(terms.gpu, fork_server, own)
        speculative_build = (
            single_grade.begin_early(terms, source, own, guard, stopwatch.deadline)
            if single_grade.may_begin_early(terms)
            else None
        )
        return _judged_by(
            lambda: own.enter_context(single_grade.keeper_of(fork_server, speculative_build, gpu_session)),
            request,
            source,
            stopwatch,
            begun,
            built_only=built_only,
        )


def _first_of_all(request: GradeRequest) -> str:
    """Return the libraries that the first grade on a machine must build."""
    from evaluator.compile.device_builders import to_build

    return to_build(request.terms.device)


def _judged_by(
    have_keeper: Callable[[], "ContextPool"],
    request: GradeRequest,
    source: str,
    stopwatch: Stopwatch,
    begun: Begun | None,
    *,
    built_only: bool,
) -> tuple[Outcome, Seeds | None]:
    with stopwatch.stage("read", request.terms.problem.name), held_back():
        with nothing_collected():
            from evaluator.devices.out_of_memory import out_of_memory
            from evaluator.judge import verdict

        context_pool, terms = have_keeper(), request.terms
        context_pool.make_room(terms)
    seeds: Seeds | None = None
    try:
        with out_of_memory(), contextlib.ExitStack() as stack:
            with stopwatch.stage("prepare", _first_of_all(request)):
                context, timer = stack.enter_context(
                    context_pool.workshop(terms, source, request.replay, stopwatch.deadline)
                )
            seeds = context.seeds.record()
            if built_only:
                return verdict.begin(context, stopwatch), seeds
            if begun is None:
                graded = verdict.judge(context, timer, stopwatch)
            else:
                graded = verdict.finish(context, timer, begun.outcome, stopwatch)
            # After the grade: the value distributions of calls are known only once the device is available.
            return graded, context.seeds.record()
    except MemoryError as error:
        reason = finding(Code.JUDGE_MEMORY, f"the judge ran out of memory: {error}")
    except JudgeFailed as error:
        reason = finding(Code.JUDGE_FAILED, error.message)
    except WarpgradeError:
        raise
    except Exception as error:  # noqa: BLE001 - the caller needs a card, and a batch must continue
        # The text may come from the submission.
        _log.error("%s", printable(traceback.format_exc()))
        message = printable(f"{type(error).__name__}: {error}")
        reason = finding(Code.OWN_FAULT, message[:_FAULT_CHARACTERS])
    return Outcome().failed(Status.INFRA_ERROR, reason), seeds


def _unread_status(reason: Finding) -> Status:
    """Status for an unread submission: build error without code in an answer; rejected if too large or no text."""
    return Status.BUILD_ERROR if reason.code in (Code.NO_CODE, Code.CUT_OFF) else Status.REJECTED
