"""Stage `time` of a grade: the submission's timed calls, beside the reference's time before and after."""

import itertools
import secrets
from contextlib import ExitStack
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.findings import Code, Trait, finding, has_trait
from evaluator.judge.context.grade_context import GradeContext
from evaluator.judge.context.reference_timing import Reading, ReferenceTimer
from evaluator.judge.exhibits import other_baselines
from evaluator.judge.reference.changing_weights import record
from evaluator.judge.stages import RightRunner, calls_in_new_runner, check_precision
from evaluator.judge.trial import timing_loop
from evaluator.records import Baseline, Check, ClockKind, Fault, Finding, Samples, Timing, Weights
from evaluator.timing.quote import over_baseline, quote, unquoted

_ONE_IN = 10
"""Grades of which one, by lot, repeats checks in a second process."""
_SECOND_CALLS = 4
"""Calls of the second process. An answer that only the memory of the first process made right is wrong at once. A
strict grade repeats all calls."""


class ReferenceSide(NamedTuple):
    """The reference's time before the submission, and the baselines."""

    before: Reading
    baselines: list[Baseline]


class TimeOutcome(NamedTuple):
    """Times of both sides; `failed` is the check of a timed call that did not pass."""

    timing: Timing | None
    failed: Check | None
    fault: Fault | None
    findings: list[Finding]
    baselines: list[Baseline] = []
    weights: Weights | None = None


def measure_reference(context: GradeContext, timer: ReferenceTimer) -> ReferenceSide:
    """Time the reference and the baselines, while no code of the submission runs."""
    before = timer.before()
    return ReferenceSide(before, other_baselines.measured(context, before))


class _Timed(NamedTuple):
    """Timed calls of a submission: samples, remarks on earlier tries, and the runner about to exit."""

    samples: Samples
    remarks: list[Finding]
    runner: RightRunner


def measure_both(
    context: GradeContext, timer: ReferenceTimer, reference: ReferenceSide, right: RightRunner | None
) -> TimeOutcome:
    """Time the submission after the reference, and look at the reference again. Each side has a separate runner.

    Without a runner of the checked calls, a new runner is timed. The intervals are computed during the exit of the
    runner, a tenth of a second on a GPU, with the half that an earlier submission left.
    """
    clock = ClockKind.HOST if context.terms.gpu is None else ClockKind.SEALED
    with ExitStack() as ends:
        timed = _timed_submission(context, reference.before, right, ends)
        if isinstance(timed, TimeOutcome):
            return timed
        kept = timer.kept_after
        quoted = None if kept is None else quote(clock, reference.before.samples, timed.samples, kept)
    after = timer.after()
    if quoted is None or after.samples is not kept:
        quoted = quote(clock, reference.before.samples, timed.samples, after.samples)
    failed, untried = check_precision(timed.runner.trial_runner, "timed")
    if failed is not None:
        return TimeOutcome(None, failed.check, failed.fault, [])
    # Without a runner of the checked calls, the timed calls were right in a second process already.
    if right is not None and (unlike := _failure_in_second_process(context)) is not None:
        return unlike
    sites, findings = timed.runner.sites, [*quoted.findings, *timed.remarks, *untried]
    timing = replace(quoted.timing, reference_age_s=after.before_age_s, drift_probe_ms=after.probe_ms)
    weights = record(context.terms.weights, context.reference.weights, sites)
    if sites.unmatched:
        return TimeOutcome(unquoted(timing), None, None, findings, reference.baselines, weights)
    baselines = [over_baseline(baseline, timed.samples, clock) for baseline in reference.baselines]
    return TimeOutcome(timing, None, None, findings, baselines, weights)


def _timed_submission(
    context: GradeContext, before: Reading, right: RightRunner | None, ends: ExitStack
) -> _Timed | TimeOutcome:
    """Time the submission in the runner of the checked calls, alive until `ends` is closed.

    A try disturbed by other work on the GPU is repeated, in a new runner. The slowest try is quoted, so that failing a
    try has no benefit.
    """
    tries: list[Samples] = []
    remarks: list[Finding] = []
    for number in itertools.count(1):
        runner = right if right is not None and number == 1 else _new_runner(context)
        if isinstance(runner, Fault):
            return TimeOutcome(None, None, runner, [])
        ends.callback(runner.ends.close)
        side = timing_loop.side(
            "submission",
            runner.trial_runner,
            context.seeds.timed("submission"),
            before.overhead,
            context.call_timeout_s,
            closely=True,
            watch=context.begin_side(),
            index=runner.calls,
            first_call_ms=runner.first_call_ms,
            usual_ms=before.samples.median_ms,
        )
        if context.gpu_session is not None:
            context.gpu_session.monitor.sample()
        tries += [side.samples] if side.samples is not None else []
        if side.samples is not None and side.failed is None:
            runner.session.leave()
            return _Timed(max(tries, key=lambda samples: samples.median_ms), remarks, runner)
        ends.close()
        fault = None if side.failed is None else side.failed.fault
        if fault is None or not has_trait(fault.finding, Trait.DISTURBED_CLOCK) or number == timing_loop.TRIES:
            return TimeOutcome(None, side.failed.check if side.failed else None, fault, [])
        message = f"timed again, and the slowest time is quoted: {fault.finding.message}"
        remarks.append(finding(Code(fault.finding.code), message, attempt=number))
    raise AssertionError("one of these tries is the last")


def _new_runner(context: GradeContext) -> RightRunner | Fault:
    """Load and construct the submission in another runner."""
    with ExitStack() as failing:
        model_runner = failing.enter_context(
            context.runners.start(context.source, context.build_services.for_submission())
        )
        fault = model_runner.load()
        constructed = fault if fault is not None else model_runner.construct()
        if isinstance(constructed, Fault):
            return constructed
        sites = model_runner.sites(constructed)
        return RightRunner(model_runner.trial_runner(sites), model_runner.session, sites, failing.pop_all())


def _is_drawn() -> bool:
    """Draw the lot of a grade."""
    return secrets.randbelow(_ONE_IN) == 0


def _failure_in_second_process(context: GradeContext) -> TimeOutcome | None:
    """Return the failure of the checked calls in a second process: in each strict grade, and in one of ten by lot.

    A single process may be right by chance, for instance by what its memory held.
    """
    strict = context.terms.options.strict
    if not strict and not _is_drawn():
        return None
    called = calls_in_new_runner(context, None, most=None if strict else _SECOND_CALLS).called
    if called.fault is None:
        return None
    fault = called.fault
    message = f"right in one process, and not in a second: {fault.finding.message}"
    failed = called.checks[-1] if called.checks and not called.checks[-1].ok else None
    return TimeOutcome(None, failed, fault._replace(finding=replace(fault.finding, message=message)), [])
