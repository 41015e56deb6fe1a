"""Grade one submission: read, build, check, time. Whoever called writes what comes out.

Each stage runs the submission in a process of its own, made afresh from the starter and dead when the stage is over;
the reference is timed in others, before and after.
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
    """Grade one submission. What it does wrong is in the card; only a broken problem or machine raises.

    Args:
        request: what is graded, and how.
        progress: is told of each stage.
        context_pool: keeps what several grades share; None for a grade on its own.
        begun: what `begin` made of the same request, on this machine; None begins here.
        last_resort: ends a process that is stuck behind the deadline; without it the grade ends when the operation
            of this thread does.

    Raises:
        UsageError: the problem is broken, or does not fit into this machine's memory.
        InfraError: no compiler, or no sandbox, on this machine.
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
    """Do as much of a grade as needs no GPU: a scorecard, if that settles it. Raises as `grade` does."""
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
    """Begin to time a grade, or go on where `begun` left off."""
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
    sized_source(
        request.terms.problem, request.terms.size
    )  # A size that the problem lacks is told before anything else.
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
            ]  # The screen shows the first few.
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
    # Here torch comes in; the cheap commands never get this far. Its threads shall sleep while they wait, not spin:
    # judge and runner share the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if context_pool is not None:
        guard.kill_with(context_pool.kill_all)
        return _judged_by(lambda: context_pool, request, source, stopwatch, begun, built_only=built_only)
    # First of all the starter: it imports torch while the judge does.
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
    """Say what the first grade on a machine waits for."""
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
            # Only now: which values calls may have is settled where the device is at hand.
            return graded, context.seeds.record()
    except MemoryError as error:
        reason = finding(Code.JUDGE_MEMORY, f"the judge ran out of memory: {error}")
    except JudgeFailed as error:
        reason = finding(Code.JUDGE_FAILED, error.message)
    except WarpgradeError:
        raise
    except Exception as error:  # noqa: BLE001 - whoever waits for a card is told by one; a batch goes on
        # A submission may have brought it about, and written a part of its text.
        _log.error("%s", printable(traceback.format_exc()))
        message = printable(f"{type(error).__name__}: {error}")
        reason = finding(Code.OWN_FAULT, message[:_FAULT_CHARACTERS])
    return Outcome().failed(Status.INFRA_ERROR, reason), seeds


def _unread_status(reason: Finding) -> Status:
    """An answer without its code cannot be built; one that is too large, or no text, is refused before that."""
    return Status.BUILD_ERROR if reason.code in (Code.NO_CODE, Code.CUT_OFF) else Status.REJECTED
