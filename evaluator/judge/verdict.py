"""The stages in their order, and the verdict they lead to."""

from msgspec.structs import replace

from evaluator.judge import stages
from evaluator.judge.workshop import Workshop
from evaluator.outcome import Outcome
from evaluator.records import DeviceKind, Status
from evaluator.stopwatch import Stopwatch


def judge(shop: Workshop, stopwatch: Stopwatch) -> Outcome:
    """Build, check and time the submission; the cheapest rejection comes first, and a failed one is not timed.

    The emulator has no time to tell: there the checks are all.
    """
    outcome = _stages(shop, stopwatch)
    outcome = replace(outcome, sandbox=shop.sandbox, output=shop.output)
    if shop.watch is None:
        return outcome
    return replace(outcome, gpu=shop.watch.facts(), findings=[*outcome.findings, *shop.watch.findings()])


def _stages(shop: Workshop, stopwatch: Stopwatch) -> Outcome:
    with stopwatch.stage("build"):
        built = stages.build(shop)
    outcome = Outcome(build=built.build)
    if built.fault is not None:
        return outcome.failed(*built.fault)
    with shop.at_device():
        return _on_device(shop, built, stopwatch)


def _on_device(shop: Workshop, built: stages.BuildOutcome, stopwatch: Stopwatch) -> Outcome:
    outcome = Outcome(build=built.build)
    with stopwatch.stage("check"):
        checked = stages.check(shop, built.build)
    outcome = replace(outcome, build=checked.build, checks=checked.checks, findings=checked.findings)
    if checked.fault is not None:
        return outcome.failed(*checked.fault)
    if shop.terms.device is DeviceKind.EMULATED:
        return replace(outcome, status=Status.CORRECT)
    with stopwatch.stage("time"):
        timed = stages.measure_both(shop)
    outcome = replace(
        outcome,
        checks=[*outcome.checks, *([timed.failed] if timed.failed is not None else [])],
        timing=timed.timing,
        findings=[*outcome.findings, *timed.findings],
    )
    if timed.fault is not None:
        return outcome.failed(*timed.fault)
    return replace(outcome, status=Status.CORRECT)
