"""Stages `build` and `check` of a grade. A runner whose checked calls were right lives on, to be timed."""

import time
from contextlib import ExitStack
from typing import NamedTuple

import torch
from msgspec.structs import replace

from evaluator.compile.binary_files import together
from evaluator.errors import SandboxUnavailable
from evaluator.findings import Code, finding
from evaluator.judge.checked_calls import Called, checked_calls
from evaluator.judge.compare.tolerance import bounds
from evaluator.judge.context.grade_context import GradeContext
from evaluator.judge.exhibits.ablation import (
    AblationResult,
    AblationResults,
    counted_alone,
    counted_without_kernels,
    right_without,
)
from evaluator.judge.exhibits.own_kernels import OwnKernelEvidence, needed_work
from evaluator.judge.reference.changing_weights import NO_SITES, Sites, record
from evaluator.judge.reference.dependence import depends_on_mode
from evaluator.judge.reference.input_distributions import PROFILES
from evaluator.judge.runners.build_service import BuildService
from evaluator.judge.runners.jit_kernels import own_names, read_kernels
from evaluator.judge.runners.language_faults import interpreter_remarks
from evaluator.judge.runners.runner_client import RunnerClient
from evaluator.judge.setup.seed_book import fresh_seed
from evaluator.judge.trial.trial import Trial
from evaluator.judge.trial.trial_runner import TrialRunner
from evaluator.protocol.frames import Counted
from evaluator.records import Build, Check, Fault, Finding, Mode, Profile, Weights

_IN_TURN = 2
"""A stopped runner of the submission, and one of the reference."""


class BuildOutcome(NamedTuple):
    """Result of loading the submission: the builds, and the fault if loading failed."""

    build: Build
    fault: Fault | None


class RightRunner(NamedTuple):
    """A runner of the submission whose answers were right so far. It lives until `ends` is closed.

    `calls` were made, the first of `first_call_ms`.
    """

    trial_runner: TrialRunner
    session: RunnerClient
    sites: Sites
    ends: ExitStack
    calls: int = 0
    first_call_ms: float | None = None


class CheckOutcome(NamedTuple):
    """The checked calls, and the first failure among the calls.

    `build` also includes extensions requested by a constructor or by a call.
    """

    build: Build
    checks: list[Check]
    fault: Fault | None
    findings: list[Finding]
    evidence: OwnKernelEvidence
    weights: Weights | None
    right: RightRunner | None = None


def require_sandbox_layers(context: GradeContext) -> None:
    """Raise SandboxUnavailable if a sandbox layer is missing under `--strict`."""
    if context.terms.options.strict and (missing := context.sandbox.missing):
        raise SandboxUnavailable(
            f"--strict requires every layer of the sandbox, but this machine lacks {', '.join(missing)}",
            hint="`warpgrade doctor` says how to get the layers; without --strict the card lists what is missing",
        )


def build(context: GradeContext) -> BuildOutcome:
    """Load the submission once, and build all extensions requested during the import."""
    context.make_headers()
    build_service = context.build_services.for_submission()
    started = time.monotonic()
    fault = context.runners.import_submission(build_service)
    if fault is not None and context.terms.gpu is not None and not build_service.failures:
        # The import may need a GPU. The submission is loaded again on the GPU, where faults count.
        fault = None
    import_s = max(time.monotonic() - started - build_service.waited_s, 0.0)
    return BuildOutcome(
        Build(ok=fault is None and not build_service.failures, import_s=import_s, units=build_service.units), fault
    )


def check(context: GradeContext, built: Build, ends: ExitStack) -> CheckOutcome:
    """Compare the submission's answers to fresh inputs with the expected outputs, at the case of the context.

    In a timed grade, a runner with right answers lives until `ends` is closed: its next calls are timed. See
    `_tried_in_other_ways` for weights and the model's mode.
    """
    (trial_runner, checks, fault, remarks, sites, *_), build_service, right = _tried_in_other_ways(context, ends)
    if trial_runner is not None and fault is None and right is None:
        lowered, untried = check_precision(trial_runner, "checked")
        remarks += untried
        if lowered is not None:
            fault, checks = lowered.fault, with_check(checks, lowered.check)
    built_keys = {unit.key for unit in built.units}
    units = [*built.units, *(unit for unit in build_service.units if unit.key not in built_keys)]
    findings = [*_build_findings(build_service), *remarks, *_about_values(context, checks)]
    findings += interpreter_remarks(context.source, context.terms.device)
    build = replace(built, ok=built.ok and not build_service.failures, units=units)
    weights = None if sites is None else record(context.terms.weights, context.reference.weights, sites)
    evidence = OwnKernelEvidence(
        context.terms.device,
        own_names(build_service, context.source),
        len(build_service.device_code),
        context.source,
        None,
        imports=together(build_service.imports),
    )
    if fault is None:
        context.right_at += (context.terms.problem.cases[context.terms.size].axes,)
    checks = [replace(check, size=context.terms.size) for check in checks]
    return CheckOutcome(build, checks, fault, findings, evidence, weights, right)


class _CheckedCalls(NamedTuple):
    """The checked calls of a runner; `right` is the runner, if it lives on."""

    called: Called
    build_service: BuildService
    right: RightRunner | None = None


def _tried_in_other_ways(context: GradeContext, ends: ExitStack) -> _CheckedCalls:
    """Return the checked calls, in training mode or with the submission's own weights where only these are right.

    A constructor may call `eval()` although the reference is in training mode: in PyTorch the caller decides about the
    mode. If values are wrong as constructed, and all answers right after `train()`, the whole grade has ModelNew after
    `train()`. The reference's own values must depend on the mode: no other wrong submission has a second chance.

    Weights matched by assumption may be the wrong weights. If the answers are then wrong, and right for the seeded
    weights, the weights stay as seeded in the whole grade: no speedup is quoted, and no right answer is refused. Near
    the end of the grade's time, another try would lose the first verdict: it takes as long as the first, and makes the
    calls that the first did not come to. Each of the two is tried alone.
    """
    started = time.monotonic()
    first_try = calls_in_new_runner(context, ends)
    needed_s = time.monotonic() - started + first_try.called.more_s
    fault = first_try.called.fault
    if fault is not None and context.deadline.left_s > needed_s and _may_need_training(context, first_try.called):
        context.in_training = True
        again = calls_in_new_runner(context, ends)
        if again.called.fault is None:
            message = f"right after train(), wrong as constructed ({fault.finding.code}): {fault.finding.message}"
            remark = finding(Code.SET_TO_TRAINING, message)
            return again._replace(called=again.called._replace(remarks=[*again.called.remarks, remark]))
        context.in_training = False
    if (reason := first_try.called.reason_to_seed) is None or context.deadline.left_s <= needed_s:
        return first_try
    context.seeded_because = reason
    again = calls_in_new_runner(context, ends)
    return again if again.called.fault is None else first_try


def _may_need_training(context: GradeContext, called: Called) -> bool:
    in_training = called.may_need_training and context.terms.problem.mode is Mode.TRAIN
    return in_training and depends_on_mode(context.reference, fresh_seed())


def calls_in_new_runner(context: GradeContext, ends: ExitStack | None, *, most: int | None = None) -> _CheckedCalls:
    """Make the checked calls, or the first `most`, in a new runner.

    In a timed grade, a runner with right answers lives until `ends` ends.
    """
    build_service = context.build_services.for_submission()
    with ExitStack() as failing:
        model_runner = failing.enter_context(context.runners.start(context.source, build_service))
        # Processes start beside the submission's load, and make GPU contexts after the last timed call.
        refill = None if context.gpu_session is None else context.runners.pool.begin_refill
        called = checked_calls(context, model_runner, refill, most=most)
        if called.fault is not None or called.trial_runner is None:
            return _CheckedCalls(called, build_service)
        if context.terms.gpu is not None:
            compiled = read_kernels(model_runner.session, context.source)
            context.kernel_cache = b"" if compiled is None else compiled.cache
        if ends is None or not context.terms.is_timed or not _may_wait(context):
            return _CheckedCalls(called, build_service)
        ends.push(failing.pop_all())
    sites = NO_SITES if called.sites is None else called.sites
    session, calls = model_runner.session, len(called.checks)
    right = RightRunner(called.trial_runner, session, sites, ends, calls, called.first_call_ms)
    return _CheckedCalls(called, build_service, right)


def _may_wait(context: GradeContext) -> bool:
    """Return whether a runner may live on until its timing.

    On a CPU the reference is measured meanwhile. Where a freeze is not atomic, a process of the submission could escape
    the freeze and slow the reference down. A required share of own kernels is determined before the timing, by more
    runners of the submission.
    """
    if context.terms.options.require_own_kernel is not None:
        return False
    if context.terms.gpu is not None:
        return True
    return "atomic-freeze" in context.sandbox.layers and context.backend.room_for(_IN_TURN)


def own_kernel_evidence(context: GradeContext, evidence: OwnKernelEvidence) -> OwnKernelEvidence:
    """Return the evidence with the parts that the answer needs, and the counted operations."""
    needs, counted = _ablation(context)
    needed = None if counted is None else needed_work(context.reference)
    return evidence._replace(needs=needs, counted=counted, needed=needed)


def _ablation(context: GradeContext) -> tuple[AblationResults, Counted | None]:
    """Find out which parts the answer needs, and count operations.

    If the counts show computation by PyTorch, only kernels are tried. On a GPU a profile shows the share of time.
    """
    if context.terms.gpu is not None:
        needs = AblationResults(right_without(context, "kernels", context.build_services.with_empty_kernels()))
        return needs, None if needs.kernels is AblationResult.RIGHT else counted_alone(context)
    without_kernels, counted = counted_without_kernels(context)
    if without_kernels is AblationResult.RIGHT or counted is None or counted.library_calls:
        return AblationResults(without_kernels), counted
    return AblationResults(without_kernels, right_without(context, "library")), counted


def check_precision(trial_runner: TrialRunner, which: str) -> tuple[Trial | None, list[Finding]]:
    """Check the errors of a runner's correct answers, and report a lack of memory for the check.

    The runner must have ended, so that its GPU memory use cannot decide.
    """
    try:
        return trial_runner.look_closely(), []
    except MemoryError as error:
        return None, [
            finding(Code.ROUNDING_UNTRIED, f"reduced precision was not checked for the {which} calls: {error}")
        ]


def with_check(checks: list[Check], failed: Check | None) -> list[Check]:
    """Return the checks with `failed` in place of the check of the same call, or at the end."""
    if failed is None:
        return checks
    is_same = [(check.index, check.seed) == (failed.index, failed.seed) for check in checks]
    replaced = [failed if same else check for same, check in zip(is_same, checks, strict=True)]
    return replaced if any(is_same) else [*checks, failed]


def _build_findings(build_service: BuildService) -> list[Finding]:
    """Return a finding for each failed build that the submission ignored. A repeated request adds no finding."""
    failures = {(failure.message, failure.line): None for failure in build_service.failures}
    return [
        finding(Code.FAILED_BUILD_IGNORED, f"the submission ignored a failed build: {message}", line=line)
        for message, line in failures
    ]


def _about_values(context: GradeContext, checks: list[Check]) -> list[Finding]:
    """Return findings about weak checks: a wide tolerance, fixed inputs, and distributions that could not be tried."""
    rule, problem = context.terms.options.tolerance, context.terms.problem
    tensors = [tensor for check in checks if check.profile is Profile.AS_GIVEN for tensor in check.tensors]
    widest: dict[str, tuple[float, float]] = {}
    for tensor in tensors:
        if tensor.tolerance is None:
            continue
        limit = bounds(rule, problem, getattr(torch, tensor.dtype))
        if tensor.tolerance > limit.far:
            widest[tensor.path] = max(widest.get(tensor.path, (0.0, 0.0)), (tensor.tolerance, limit.floor))
    findings = [
        finding(
            Code.WIDE_TOLERANCE,
            f"{path}: the tolerance is {tolerance:.2g} of the row's size, {tolerance / floor:.0f} times the floor",
            path=path,
        )
        for path, (tolerance, floor) in widest.items()
    ]
    if context.reference.has_fixed_inputs:
        message = "get_inputs returns the same values in every call"
        findings.append(finding(Code.FIXED_INPUTS, message))
    if untried := context.seeds.distribution_mix.untried:
        names = ", ".join(profile.value for profile in untried)
        reason = context.seeds.distribution_mix.left_out[untried[0]]
        message = f"{len(untried)} of {len(PROFILES)} input distributions were not checked: {reason}"
        findings.append(finding(Code.VALUES_UNTRIED, message, profiles=names))
    return findings
