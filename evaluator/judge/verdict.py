"""The stages in their order, and the verdict they lead to."""

from msgspec.structs import replace

from evaluator.judge import stages
from evaluator.judge.baseline import ReferenceTimer
from evaluator.judge.bound import bound
from evaluator.judge.left_out import needed_alone
from evaluator.judge.ownership import not_known, own_kernels, too_little
from evaluator.judge.profiling import profiling
from evaluator.judge.workshop import Workshop
from evaluator.progress import Stopwatch
from evaluator.records import Build, DeviceKind, Outcome, Status


def judge(shop: Workshop, timer: ReferenceTimer, stopwatch: Stopwatch) -> Outcome:
    """Look at the text, then build, check and time the submission; the cheapest rejection comes first.

    But where the build is there already, the problem is got ready first: what runs a submission is still being made. A
    failed one is not timed. The emulator has no time to tell: there the checks are all. What the text shows decides
    nothing: it is added to the findings.
    """
    shop.insist_on_walls()
    shop.reach_for_device()
    if shop.may_get_ahead():
        with stopwatch.stage("device"):
            shop.get_ahead()
    begun = _built(shop, stopwatch)
    return begun if begun.reason is not None else finish(shop, timer, begun, stopwatch)


def begin(shop: Workshop, stopwatch: Stopwatch) -> Outcome:
    """Do what needs no GPU: look at the text, and build. An outcome with a reason is final."""
    shop.insist_on_walls()
    return _built(shop, stopwatch)


def _built(shop: Workshop, stopwatch: Stopwatch) -> Outcome:
    with stopwatch.stage("lint"):
        remarks = shop.lint()
    with stopwatch.stage("build"):
        built = stages.build(shop)
    outcome = Outcome(build=built.build, findings=remarks, sandbox=shop.sandbox, output=shop.output)
    return outcome if built.fault is None else outcome.failed(*built.fault)


def finish(shop: Workshop, timer: ReferenceTimer, begun: Outcome, stopwatch: Stopwatch) -> Outcome:
    """Check and time what was built, here or by another process on the same machine."""
    if begun.build is None:
        raise ValueError("nothing was built")
    if shop.terms.gpu is not None:
        with stopwatch.stage("device"):
            shop.have_device()
    outcome = _on_device(shop, timer, begun.build, stopwatch)
    unsure = not_known(outcome.own_kernels, shop.terms.options.require_own_kernel)
    if outcome.status is Status.CORRECT and unsure is not None:
        outcome = outcome.failed(*unsure)
    outcome = replace(outcome, sandbox=shop.sandbox, output=shop.output, findings=[*outcome.findings, *begun.findings])
    if shop.watch is None:
        return outcome
    return replace(outcome, gpu=shop.watch.facts(), findings=[*outcome.findings, *shop.watch.findings()])


def _on_device(shop: Workshop, timer: ReferenceTimer, built: Build, stopwatch: Stopwatch) -> Outcome:
    with stopwatch.stage("check"):
        checked = stages.check(shop, timer, built)
    own = own_kernels(checked.evidence)
    outcome = Outcome(
        build=checked.build,
        checks=checked.checks,
        findings=checked.findings,
        own_kernels=own,
        weights=checked.weights,
    )
    fault = checked.fault or too_little(own, shop.terms.options.require_own_kernel)
    if fault is not None:
        return outcome.failed(*fault)
    if shop.terms.device is DeviceKind.EMULATED:
        return replace(outcome, status=Status.CORRECT)
    with stopwatch.stage("time"):
        timed = stages.measure_both(shop, timer)
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
    if shop.terms.gpu is not None and timed.timing is not None:
        with stopwatch.stage("roofline"):
            bounded = bound(shop, timed.timing)
        outcome = replace(outcome, roofline=bounded.roofline, findings=[*outcome.findings, *bounded.findings])
        if bounded.fault is not None:
            return outcome.failed(*bounded.fault)
    # On a GPU nothing else says how much own kernels do.
    if shop.terms.options.profile is not None or (
        shop.terms.gpu is not None and shop.terms.options.require_own_kernel is not None
    ):
        with stopwatch.stage("profile"):
            profile = profiling(shop)
            if shop.terms.options.require_own_kernel is not None:
                profile = needed_alone(shop, profile)
        own = own_kernels(checked.evidence._replace(profiling=profile))
        outcome = replace(outcome, profiling=profile, own_kernels=own)
        if (little := too_little(own, shop.terms.options.require_own_kernel)) is not None:
            return outcome.failed(*little)
    return replace(outcome, status=Status.CORRECT)
