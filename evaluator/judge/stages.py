"""The stages of a grade: each runs the submission in a fresh process and says what came of it."""

import itertools
import time
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.errors import JudgeFailed
from evaluator.findings import Code, finding
from evaluator.judge import measure
from evaluator.judge.desk import BuildDesk
from evaluator.judge.emulation import hard_coded_size
from evaluator.judge.session import Fault
from evaluator.judge.workshop import AS_REFERENCE, Place, Workshop
from evaluator.records import Build, Check, ClockKind, DeviceKind, Finding, Samples, SizeName, Status, Timing
from evaluator.timing.quote import quote

CHECKS = 5
"""Checked calls before anything is timed. Every timed call is checked as well."""


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


class TimeOutcome(NamedTuple):
    """The times of both sides; `failed` is a timed call's own check, where one was not a pass."""

    timing: Timing | None
    failed: Check | None
    fault: Fault | None
    findings: list[Finding]


def build(shop: Workshop) -> BuildOutcome:
    """Have the submission read in once, and everything built that it asks for on the way."""
    desk = shop.desk()
    started = time.monotonic()
    with shop.reader(desk) as place:
        fault = place.load()
    if fault is not None and shop.terms.gpu is not None and not desk.failures:
        fault = (
            None  # It may need the GPU to be read in. It will be read in again, with one, and then its faults count.
        )
    import_s = max(time.monotonic() - started - desk.wall_s, 0.0)
    return BuildOutcome(Build(ok=fault is None and not desk.failures, import_s=import_s, units=desk.units), fault)


def check(shop: Workshop, built: Build) -> CheckOutcome:
    """Hold the submission's answers to fresh inputs against the expected ones."""
    desk = shop.desk()
    with shop.runner(shop.source, desk) as place:
        checks, fault, remarks = _checked_calls(shop, place)
    known = {unit.key for unit in built.units}
    units = [*built.units, *(unit for unit in desk.units if unit.key not in known)]
    findings = [*_build_findings(desk), *remarks]
    return CheckOutcome(replace(built, ok=built.ok and not desk.failures, units=units), checks, fault, findings)


def _checked_calls(shop: Workshop, place: Place) -> tuple[list[Check], Fault | None, list[Finding]]:
    if (fault := place.load()) is not None:
        return [], fault, []
    constructed = place.construct()
    if isinstance(constructed, Fault):
        return [], constructed, []
    checks: list[Check] = []
    bench = place.bench()
    emulated = shop.terms.device is DeviceKind.EMULATED
    schedules = shop.seeds.schedules() if emulated else itertools.repeat(None)
    count = max(CHECKS, shop.seeds.checks_known)
    for index, seed, schedule in zip(range(count), shop.seeds.checks(), schedules, strict=False):
        trial = bench.run(index, seed, schedule=schedule, timeout_s=shop.call_timeout_s)
        checks += [trial.check] if trial.check is not None else []
        if trial.fault is not None:
            return checks, _excused(trial.fault, shop), _remarks(constructed.difference, checks)
    return checks, None, _remarks(constructed.difference, checks)


_EXCUSABLE = frozenset(
    code.value
    for code in (Code.WRONG_SHAPE, Code.WRONG_VALUES, Code.NOT_FINITE, Code.FORWARD_FAILED, Code.ILLEGAL_ACCESS)
)


def _excused(fault: Fault, shop: Workshop) -> Fault:
    """Give no verdict on a kernel that failed at a small size and was written for the full one.

    Only on `emulated`, which has no full size to grade it at, and only for what a wrong size leads to: elsewhere a
    number in the text would be a way around a verdict.
    """
    size, sizes = shop.terms.size, shop.terms.problem.sizes
    if (
        shop.terms.device is not DeviceKind.EMULATED
        or size is SizeName.FULL
        or Code(fault.finding.code) not in _EXCUSABLE
    ):
        return fault
    excuse = hard_coded_size(shop.source, sizes[SizeName.FULL], sizes[size], fault.finding)
    return fault if excuse is None else Fault(Status.INCONCLUSIVE, excuse)


def measure_both(shop: Workshop) -> TimeOutcome:
    """Time the reference, then the submission, then the reference again, each in a runner of its own."""
    before, empty = _reference_side(shop, "reference_before", None)
    with shop.runner(shop.source, shop.desk()) as place:
        fault = place.load()
        constructed = fault if fault is not None else place.construct()
        if isinstance(constructed, Fault):
            return TimeOutcome(None, None, constructed, [])
        side = measure.side("submission", place.bench(), shop.seeds.timed("submission"), empty, shop.call_timeout_s)
        shop.look()
    if side.samples is None:
        failed = side.failed
        return TimeOutcome(None, failed.check if failed else None, failed.fault if failed else None, [])
    after, _ = _reference_side(shop, "reference_after", empty)
    clock = ClockKind.HOST if shop.terms.gpu is None else ClockKind.SEALED
    said = quote(clock, before, side.samples, after)
    copied = (
        [finding(Code.OUTPUT_COPIED, "the submission's outputs were copied inside the clock")]
        if side.samples.outputs_copied
        else []
    )
    return TimeOutcome(said.timing, None, None, [*said.findings, *copied])


def _reference_side(shop: Workshop, name: str, empty: measure.Overhead | None) -> tuple[Samples, measure.Overhead]:
    """Time the reference in a runner that never saw a submission; what goes wrong there is not the submission's.

    The overhead of a call is measured first where it is not known yet.
    """
    with shop.runner(AS_REFERENCE) as place:
        fault = place.load()
        constructed = fault if fault is not None else place.construct()
        if isinstance(constructed, Fault):
            raise JudgeFailed(f"the reference's own runner failed: {constructed.finding.message}")
        bench = place.bench()
        measured = measure.overhead(bench, shop.call_timeout_s) if empty is None else empty
        if isinstance(measured, Fault):
            raise JudgeFailed(f"the reference's own runner failed: {measured.finding.message}")
        side = measure.side(name, bench, shop.seeds.timed(name), measured, shop.call_timeout_s)
        shop.look()
    if side.samples is None:
        fault = side.failed.fault if side.failed is not None else None
        why = fault.finding.message if fault is not None else "no samples"
        raise JudgeFailed(
            f"the reference does not pass its own check: {why}",
            hint="its output may depend on more than its inputs and weights; see `warpgrade problems show`",
        )
    return side.samples, measured


def _build_findings(desk: BuildDesk) -> list[Finding]:
    """A submission that got here although a build failed went on without it."""
    return [
        finding(Code.FAILED_BUILD_IGNORED, f"a build failed and was ignored: {failure.message}", line=failure.line)
        for failure in desk.failures
    ]


def _remarks(difference: str | None, checks: list[Check]) -> list[Finding]:
    remarks = []
    if difference is not None:
        remarks.append(finding(Code.WEIGHTS_NOT_COPIED, f"weights were seeded, not copied: {difference}"))
    if checks and all(each.launches == 0 for each in checks):
        remarks.append(finding(Code.NO_LAUNCH, "no kernel was launched in any of the checked calls"))
    if any(each.precision != "float64" for each in checks):
        remarks.append(finding(Code.NOT_FLOAT64, "expected values are the reference's own, not float64"))
    return remarks
