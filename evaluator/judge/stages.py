"""The stages of a grade: each runs the submission in a fresh process and says what came of it."""

import itertools
import time
from collections.abc import Iterator
from typing import NamedTuple

import torch
from msgspec.structs import replace

from evaluator.build.imports import together
from evaluator.cuda_source.kernel_names import joined
from evaluator.findings import Code, finding
from evaluator.judge import measure, other_baselines
from evaluator.judge.baseline import ReferenceTimer
from evaluator.judge.desk import BuildDesk
from evaluator.judge.emulation import hard_coded_size
from evaluator.judge.left_out import Answer, Needs, right_without
from evaluator.judge.ownership import Evidence
from evaluator.judge.place import Place
from evaluator.judge.profiles import PROFILES
from evaluator.judge.repeat import differing, made_again
from evaluator.judge.tolerance import bounds
from evaluator.judge.trial import Bench, Trial
from evaluator.judge.weights import NO_SITES, Sites, record
from evaluator.judge.work_count import count_work
from evaluator.judge.workshop import Workshop
from evaluator.protocol.frames import Counted
from evaluator.records import (
    Baseline,
    Build,
    Check,
    ClockKind,
    DeviceKind,
    Fault,
    Finding,
    Profile,
    Samples,
    Schedule,
    SizeName,
    Status,
    Timing,
    Weights,
)
from evaluator.submission.host_code import is_for_the_cpu
from evaluator.timing.quote import quote, unquoted


class BuildOutcome(NamedTuple):
    """The submission read in, or why not."""

    build: Build
    fault: Fault | None


class CheckOutcome(NamedTuple):
    """The checked calls, and the first failure among them.

    `build` has what was asked for in a constructor or in a call too.
    """

    build: Build
    checks: list[Check]
    fault: Fault | None
    findings: list[Finding]
    evidence: Evidence
    weights: Weights | None


class _Called(NamedTuple):
    """The checked calls of one runner, and what asked them; without it the submission could not be called."""

    bench: Bench | None
    checks: list[Check]
    fault: Fault | None
    remarks: list[Finding]
    sites: Sites | None = None


class TimeOutcome(NamedTuple):
    """The times of both sides; `failed` is a timed call's own check, where one was not a pass."""

    timing: Timing | None
    failed: Check | None
    fault: Fault | None
    findings: list[Finding]
    baselines: list[Baseline] = []
    weights: Weights | None = None


def build(shop: Workshop) -> BuildOutcome:
    """Have the submission read in once, and everything built that it asks for on the way."""
    desk = shop.desk()
    started = time.monotonic()
    fault = shop.read_in(desk)
    if fault is not None and shop.terms.gpu is not None and not desk.failures:
        fault = (
            None  # It may need the GPU to be read in. It will be read in again, with one, and then its faults count.
        )
    import_s = max(time.monotonic() - started - desk.waited_s, 0.0)
    return BuildOutcome(Build(ok=fault is None and not desk.failures, import_s=import_s, units=desk.units), fault)


def check(shop: Workshop, timer: ReferenceTimer, built: Build) -> CheckOutcome:
    """Hold the submission's answers to fresh inputs against the expected ones."""
    desk = shop.desk()
    with shop.runner(shop.source, desk) as place:
        shop.spares.refill()
        if shop.terms.device is not DeviceKind.EMULATED:
            timer.begin()
        bench, checks, fault, remarks, sites = _checked_calls(shop, place)
        counted = None
        wanted = shop.terms.options.require_own_kernel is not None and shop.terms.gpu is None
        if fault is None and sites is not None and wanted:
            counted = count_work(place, sites, shop.call_timeout_s)
    if bench is not None and fault is None:
        lowered, untried = _looked_closely(bench, "checked")
        remarks += untried
        if lowered is not None:
            fault, checks = lowered.fault, _with(checks, lowered.check)
    known = {unit.key for unit in built.units}
    units = [*built.units, *(unit for unit in desk.units if unit.key not in known)]
    findings = [*_build_findings(desk), *remarks, *_about_values(shop, checks)]
    needs = Needs()
    if fault is None and shop.terms.options.require_own_kernel is not None:
        needs = _needs(shop, counted)
    build = replace(built, ok=built.ok and not desk.failures, units=units)
    weights = None if sites is None else record(shop.terms.weights, shop.reference.weights, sites)
    evidence = _evidence(shop, desk, counted)._replace(needs=needs)
    return CheckOutcome(build, checks, fault, findings, evidence, weights)


def _needs(shop: Workshop, counted: Counted | None) -> Needs:
    """Try what an answer needs. Where the count says that PyTorch computes, it is not asked whether it must."""
    if shop.terms.gpu is not None:
        return Needs(right_without(shop, "kernels", shop.idle_desk()))
    without_kernels = right_without(shop, "kernels")
    if without_kernels is Answer.RIGHT or counted is None or counted.library_calls:
        return Needs(without_kernels)
    return Needs(without_kernels, right_without(shop, "library"))


def _evidence(shop: Workshop, desk: BuildDesk, counted: Counted | None) -> Evidence:
    return Evidence(
        shop.terms.device,
        joined(desk.device_code),
        len(desk.device_code),
        shop.source,
        counted,
        imports=together(desk.imports),
    )


def _checked_calls(shop: Workshop, place: Place) -> _Called:
    if (fault := place.load()) is not None:
        return _Called(None, [], _for_the_cpu(fault, shop), [])
    constructed = place.construct()
    if isinstance(constructed, Fault):
        return _Called(None, [], _for_the_cpu(constructed, shop), [])
    checks: list[Check] = []
    sites = place.sites(constructed)
    bench = place.bench(sites)
    emulated = shop.terms.device is DeviceKind.EMULATED
    schedules: Iterator[Schedule | None] = shop.seeds.schedules() if emulated else itertools.repeat(None)
    right: set[int] = set()
    for index, seed in enumerate(shop.seeds.checks(timed=not emulated)):
        trial = bench.run(index, seed, schedule=next(schedules), timeout_s=shop.call_timeout_s)
        checks += [trial.check] if trial.check is not None else []
        if trial.fault is None:
            right.add(seed)
            continue
        if seed in right:
            fault, again = differing(trial.fault), None
        else:
            fault, again = made_again(bench, trial, index, seed, schedules, shop.call_timeout_s)
        checks += [again] if again is not None else []
        excused = None if fault is None else _excused(_for_the_cpu(fault, shop), shop)
        return _Called(bench, checks, excused, _remarks(constructed.difference, checks, sites), sites)
    return _Called(bench, checks, None, _remarks(constructed.difference, checks, sites), sites)


def _looked_closely(bench: Bench, which: str) -> tuple[Trial | None, list[Finding]]:
    """Look at the errors of a runner's right answers, and say where memory was too little for that.

    Only once the runner has ended: what it holds of a GPU must not decide.
    """
    try:
        return bench.look_closely(), []
    except MemoryError as error:
        return None, [
            finding(Code.ROUNDING_UNTRIED, f"reduced precision was not checked for the {which} calls: {error}")
        ]


def _with(checks: list[Check], instead: Check | None) -> list[Check]:
    """Put a check in the place of the one of the same call."""
    return [instead if instead is not None and check.index == instead.index else check for check in checks]


def _frozen(sites: Sites) -> Finding:
    message = f"the weights kept their initial values, so no speedup is quoted: {sites.why_not}"
    return finding(Code.WEIGHTS_NOT_CHANGED, message)


_EXCUSABLE = frozenset(
    code.value
    for code in (Code.WRONG_SHAPE, Code.WRONG_VALUES, Code.NOT_FINITE, Code.FORWARD_FAILED, Code.ILLEGAL_ACCESS)
)


_REFUSALS = frozenset(
    code.value
    for code in (Code.CONSTRUCTOR_FAILED, Code.FORWARD_FAILED, Code.RUNNER_DIED, Code.ILLEGAL_ACCESS, Code.WRONG_DEVICE)
)


def _for_the_cpu(fault: Fault, shop: Workshop) -> Fault:
    """Give no verdict on C++ for the CPU that failed on another device: its tensors are not what it was written for."""
    if shop.terms.device is DeviceKind.CPU or fault.finding.code not in _REFUSALS or not is_for_the_cpu(shop.source):
        return fault
    device = shop.terms.device.value
    message = f"the submission builds C++ for the CPU, and this grade is on {device}: {fault.finding.message}"
    return Fault(Status.INCONCLUSIVE, finding(Code.NOT_ON_THIS_DEVICE, message, line=fault.finding.line))


def _excused(fault: Fault, shop: Workshop) -> Fault:
    """Give no verdict on a kernel that failed at a small size and was written for the full one.

    Only on `emulated`, which has no full size to grade it at, and only for what a wrong size leads to: elsewhere a
    number in the text would be a way around a verdict.
    """
    if (
        shop.terms.device is not DeviceKind.EMULATED
        or shop.terms.size is SizeName.FULL
        or Code(fault.finding.code) not in _EXCUSABLE
    ):
        return fault
    excuse = hard_coded_size(shop.full_size_numbers(), fault.finding)
    return fault if excuse is None else Fault(Status.INCONCLUSIVE, excuse)


def measure_both(shop: Workshop, timer: ReferenceTimer) -> TimeOutcome:
    """Time the reference, then the submission, then the reference again, each in a runner of its own."""
    shop.end_early()
    shop.spares.settle()
    before = timer.before()
    others = other_baselines.measured(shop, before)
    timed, remarks, sites = _timed_submission(shop, before.overhead)
    if isinstance(timed, TimeOutcome):
        return timed
    after = timer.after()
    clock = ClockKind.HOST if shop.terms.gpu is None else ClockKind.SEALED
    said = quote(clock, before.samples, timed, after)
    weights = record(shop.terms.weights, shop.reference.weights, sites)
    if sites.unmatched:
        return TimeOutcome(unquoted(said.timing), None, None, [*said.findings, *remarks], others, weights)
    others = other_baselines.held_against(others, timed, said.timing.resolution_ms)
    return TimeOutcome(said.timing, None, None, [*said.findings, *remarks], others, weights)


def _timed_submission(shop: Workshop, empty: measure.Overhead) -> tuple[Samples | TimeOutcome, list[Finding], Sites]:
    """Time the submission in a runner of its own, or say why not; with what there is to be said, and its weights.

    A GPU that was not quiet is tried again. Of the tries the slowest is quoted: nobody gains by failing one.
    """
    tried: list[Samples] = []
    remarks: list[Finding] = []
    for number in itertools.count(1):
        with shop.runner(shop.source, shop.desk()) as place:
            fault = place.load()
            constructed = fault if fault is not None else place.construct()
            if isinstance(constructed, Fault):
                return TimeOutcome(None, None, constructed, []), [], NO_SITES
            sites = place.sites(constructed)
            bench, seeds = place.bench(sites), shop.seeds.timed("submission")
            side = measure.side("submission", bench, seeds, empty, shop.call_timeout_s, closely=True)
            shop.look()
        failed, untried = (side.failed, []) if side.failed is not None else _looked_closely(bench, "timed")
        tried += [side.samples] if side.samples is not None else []
        if side.samples is not None and failed is None:
            return max(tried, key=lambda each: each.median_ms), [*remarks, *untried], sites
        fault = None if failed is None else failed.fault
        if fault is None or fault.finding.code not in measure.DISTURBED or number == measure.TRIES:
            return TimeOutcome(None, failed.check if failed else None, fault, []), [], sites
        message = f"timed again, and the slowest time is quoted: {fault.finding.message}"
        remarks.append(finding(Code(fault.finding.code), message, attempt=number))
    raise AssertionError("one of these tries is the last")


def _build_findings(desk: BuildDesk) -> list[Finding]:
    """A submission that got here although a build failed went on without it."""
    return [
        finding(
            Code.FAILED_BUILD_IGNORED, f"the submission ignored a failed build: {failure.message}", line=failure.line
        )
        for failure in desk.failures
    ]


def _about_values(shop: Workshop, checks: list[Check]) -> list[Finding]:
    """Say what makes the checks weaker than they could be: a wide tolerance, and values that nobody had time to try."""
    rule, problem = shop.terms.options.tolerance, shop.terms.problem
    given = [tensor for each in checks if each.profile is Profile.AS_GIVEN for tensor in each.tensors]
    widest: dict[str, tuple[float, float]] = {}
    for tensor in given:
        if tensor.tolerance is None:
            continue
        limit = bounds(rule, problem, getattr(torch, tensor.dtype))
        if tensor.tolerance > limit.far:
            widest[tensor.path] = max(widest.get(tensor.path, (0.0, 0.0)), (tensor.tolerance, limit.floor))
    found = [
        finding(
            Code.WIDE_TOLERANCE,
            f"{path}: the tolerance is {tolerance:.2g} of the row's size, {tolerance / floor:.0f} times the floor",
            path=path,
        )
        for path, (tolerance, floor) in widest.items()
    ]
    if untried := shop.seeds.mixture.untried:
        names = ", ".join(profile.value for profile in untried)
        message = f"{len(untried)} of {len(PROFILES)} input distributions were not checked: the problem is too large"
        found.append(finding(Code.VALUES_UNTRIED, message, profiles=names))
    return found


def _remarks(difference: str | None, checks: list[Check], sites: Sites) -> list[Finding]:
    remarks = []
    if difference is not None:
        remarks.append(finding(Code.WEIGHTS_NOT_COPIED, f"weights were seeded, not copied: {difference}"))
    if sites.unmatched:
        remarks.append(_frozen(sites))
    if checks and all(each.launches == 0 for each in checks):
        remarks.append(finding(Code.NO_LAUNCH, "none of the checked calls launched a kernel"))
    if any(each.precision != "float64" for each in checks):
        remarks.append(finding(Code.NOT_FLOAT64, "the expected values are the reference's own outputs, not float64"))
    return remarks
