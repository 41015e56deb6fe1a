"""Position of a submission under the current GPU's roofline, and the verdict on an impossible position."""

import contextlib
from typing import NamedTuple

import torch

from evaluator.catalog.reference import read_reference
from evaluator.devices.driver import DriverError
from evaluator.errors import ProblemError
from evaluator.findings import Code, finding
from evaluator.judge.context.grade_context import GradeContext
from evaluator.judge.exhibits import gpu_peaks
from evaluator.judge.exhibits.required_traffic import TrafficUnknown, required_traffic
from evaluator.records import Constant, Fault, Finding, L2Rule, Precision, Roofline, RooflineOverride, Status, Timing
from evaluator.roofline.attained import Needs, Roof, attained, impossible, is_impossible, remarks
from evaluator.roofline.least_time import peak_of


class RooflineOutcome(NamedTuple):
    """Roofline, if known; fault, if the time is impossible; further findings.

    `unearned`: the time needs more than the arithmetic units of the problem's precision, and no call could have told
    fewer bits.
    """

    roofline: Roofline | None
    fault: Fault | None
    findings: list[Finding]
    unearned: bool = False


def check_roofline(context: GradeContext, timing: Timing) -> RooflineOutcome:
    """Compare the submission's time with the limits of the GPU. No runner exists during the check.

    Before an impossible time becomes a verdict, the bandwidth is measured again: a cached value from a slow moment must
    not reject a submission.
    """
    gpu, kernels = context.terms.gpu, context.backend.kernels
    if gpu is None or kernels is None:
        raise TypeError("a roofline needs a GPU")
    problem = context.terms.problem
    precision, factor = peak_of(problem)
    try:
        needs = _declared_needs(problem.roofline) or required_traffic(problem, context.terms.size, context.reference)
        l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        roof = Roof(
            bandwidth_bytes_per_s=gpu_peaks.bandwidth(gpu, kernels),
            l2_bytes=l2_bytes,
            warm_bytes=l2_bytes if context.terms.l2 is L2Rule.WARM else 0,
            peak_flop_per_s=gpu_peaks.peak(gpu, precision) * factor if _counts_operations(needs, context) else None,
        )
        constants = _constants(context)
        result = attained(needs, roof, timing, problem.roofline, constants)
        if is_impossible(result, timing):
            again = max(roof.bandwidth_bytes_per_s, gpu_peaks.measured_bandwidth(kernels))
            result = attained(needs, roof._replace(bandwidth_bytes_per_s=again), timing, problem.roofline, constants)
    except (TrafficUnknown, ProblemError, RuntimeError, DriverError) as error:
        # A reference that rejects a changed input, or too little memory: the measured times remain valid.
        return RooflineOutcome(None, None, [finding(Code.NO_ROOFLINE, f"the floor is unknown: {_first_line(error)}")])
    finally:
        with contextlib.suppress(RuntimeError):
            torch.cuda.empty_cache()
    if is_impossible(result, timing):
        return RooflineOutcome(result, Fault(Status.REJECTED, impossible(result, timing)), [])
    findings = remarks(result, timing)
    beats_units = any(item.code == Code.BEATS_TARGET.value for item in findings) and result.target_ms > result.floor_ms
    unearned = beats_units and problem.precision is Precision.FP32 and not context.seeds.distribution_mix.row_sites
    if unearned:
        message = (
            f"no speedup is quoted: {timing.submission_median_ms:.4g} ms is less than the fp32 units of this GPU need, "
            f"{result.target_ms:.4g} ms, and the outputs mix all inputs, so that no call could have told fewer bits"
        )
        findings.append(finding(Code.TIME_UNEARNED, message))
    return RooflineOutcome(result, None, findings, unearned)


def _declared_needs(override: RooflineOverride | None) -> Needs | None:
    """Return empty needs if the problem's author states all traffic, to omit counts and samples; else None."""
    if override is None or override.read_bytes is None or override.written_bytes is None:
        return None
    return Needs(
        read_bytes=0,
        written_bytes=0,
        flop=0,
        input_bytes=0,
        state_bytes=0,
        input_flips=None,
        state_flips=None,
        distinct_bytes=0,
        distinct_input_bytes=0,
    )


def _counts_operations(needs: Needs, context: GradeContext) -> bool:
    override = context.terms.problem.roofline
    return needs.flop > 0 or (override is not None and override.flop is not None)


def _constants(context: GradeContext) -> dict[str, Constant]:
    constants = read_reference(context.reference.source, context.terms.problem.path).constants
    return {name: literal.value for name, literal in constants.items()}


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:300]
