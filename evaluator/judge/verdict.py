"""Sequence of the stages, and the resulting verdict."""

from msgspec.structs import replace

from evaluator.judge import stages
from evaluator.judge.context.grade_context import GradeContext
from evaluator.judge.context.reference_timing import ReferenceTimer
from evaluator.judge.own_kernels.ablation import needed_alone
from evaluator.judge.own_kernels.own_kernels import not_known, own_kernels, too_little
from evaluator.judge.profiling.kernel_profile import profiling
from evaluator.judge.roofline.roofline_check import check_roofline
from evaluator.progress import Stopwatch
from evaluator.records import Build, DeviceKind, Outcome, Status


def judge(context: GradeContext, timer: ReferenceTimer, stopwatch: Stopwatch) -> Outcome:
    """Lint, build, check and time the submission; stages with the cheapest rejections come first.

    If speculative builds are complete, the problem is set up first, while processes for the submission are still
    starting. A failed submission is not timed. On `emulated`, a grade ends after the checks, since no time is
    meaningful. The lint decides nothing, and only adds findings.
    """
    stages.require_sandbox_layers(context)
    if context.gpu_session is not None:
        context.gpu_session.reach()
    if context.may_set_up_early():
        with stopwatch.stage("device"):
            context.set_up_early()
    begun = _built(context, stopwatch)
    return begun if begun.reason is not None else finish(context, timer, begun, stopwatch)


def begin(context: GradeContext, stopwatch: Stopwatch) -> Outcome:
    """Run the stages without a GPU: lint and build. An outcome with a reason is final."""
    stages.require_sandbox_layers(context)
    return _built(context, stopwatch)


def _built(context: GradeContext, stopwatch: Stopwatch) -> Outcome:
    with stopwatch.stage("lint"):
        remarks = context.lint()
    with stopwatch.stage("build"):
        built = stages.build(context)
    outcome = Outcome(build=built.build, findings=remarks, sandbox=context.sandbox, output=context.output)
    return outcome if built.fault is None else outcome.failed(*built.fault)


def finish(context: GradeContext, timer: ReferenceTimer, begun: Outcome, stopwatch: Stopwatch) -> Outcome:
    """Check and time a build, made here or by another process on the same machine."""
    if begun.build is None:
        raise ValueError("nothing was built")
    if context.terms.gpu is not None:
        with stopwatch.stage("device"):
            context.take_device()
    outcome = _on_device(context, timer, begun.build, stopwatch)
    unsure = not_known(outcome.own_kernels, context.terms.options.require_own_kernel)
    if outcome.status is Status.CORRECT and unsure is not None:
        outcome = outcome.failed(*unsure)
    outcome = replace(
        outcome, sandbox=context.sandbox, output=context.output, findings=[*outcome.findings, *begun.findings]
    )
    if context.gpu_session is None:
        return outcome
    monitor = context.gpu_session.monitor
    return replace(outcome, gpu=monitor.facts(), findings=[*outcome.findings, *monitor.findings()])


def _on_device(context: GradeContext, timer: ReferenceTimer, built: Build, stopwatch: Stopwatch) -> Outcome:
    with stopwatch.stage("check"):
        checked = stages.check(context, timer, built)
    own = own_kernels(checked.evidence)
    outcome = Outcome(
        build=checked.build,
        checks=checked.checks,
        findings=checked.findings,
        own_kernels=own,
        weights=checked.weights,
    )
    fault = checked.fault or too_little(own, context.terms.options.require_own_kernel)
    if fault is not None:
        return outcome.failed(*fault)
    if context.terms.device is DeviceKind.EMULATED:
        return replace(outcome, status=Status.CORRECT)
    with stopwatch.stage("time"):
        timed = stages.measure_both(context, timer)
    outcome = replace(
        outcome,
        checks=[*outcome.checks, *([timed.failed] if timed.failed is not None else [])],
        timing=timed.timing,
        baselines=timed.baselines,
        weights=timed.weights or checked.weights,
        findings=[*outcome.findings, *timed.findings],
    )
    if timed.fault is not None:
        return outcome.failed(*timed.fault)
    if context.terms.gpu is not None and timed.timing is not None:
        with stopwatch.stage("roofline"):
            bounded = check_roofline(context, timed.timing)
        outcome = replace(outcome, roofline=bounded.roofline, findings=[*outcome.findings, *bounded.findings])
        if bounded.fault is not None:
            return outcome.failed(*bounded.fault)
    # On a GPU, no other measurement shows the share of own kernels.
    if context.terms.options.profile is not None or (
        context.terms.gpu is not None and context.terms.options.require_own_kernel is not None
    ):
        with stopwatch.stage("profile"):
            profile = profiling(context)
            if context.terms.options.require_own_kernel is not None:
                profile = needed_alone(context, profile)
        own = own_kernels(checked.evidence._replace(profiling=profile))
        outcome = replace(outcome, profiling=profile, own_kernels=own)
        if (little := too_little(own, context.terms.options.require_own_kernel)) is not None:
            return outcome.failed(*little)
    return replace(outcome, status=Status.CORRECT)
