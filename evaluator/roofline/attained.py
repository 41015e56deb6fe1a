"""A submission's time relative to the roofline, and detection of impossible times. Pure: values in, records out."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from evaluator.catalog.formula import evaluate
from evaluator.findings import Code, finding
from evaluator.records import Constant, Finding, Flips, Record, Roofline, RooflineOverride, Timing

_DOUBT = 1e-3
"""Probability that `least_part` is too high. The bound decides a verdict."""
_STEPS = 60


class Needs(Record, frozen=True):
    """Needs of one call, as counted and sampled. All sizes in bytes.

    `read_bytes`, `written_bytes` and `flop` are those of `CallWork`. `input_bytes` and `state_bytes` are the parts
    of the read bytes that flips could change: floats and booleans of inputs (and output gradients), and of
    weights. Flips are None without sampling; all bytes then count as needed. `distinct_bytes` excludes outputs that
    could be expanded views, which no program has to write. `distinct_input_bytes` does the same for inputs, and
    excludes half of a symmetric input.
    """

    read_bytes: int
    written_bytes: int
    flop: int
    input_bytes: int
    state_bytes: int
    input_flips: Flips | None
    state_flips: Flips | None
    distinct_bytes: int
    distinct_input_bytes: int


class Roof(NamedTuple):
    """Measured limits of a GPU. `peak_flop_per_s` is for the problem's precision; None without operations.

    With warm inputs, up to `warm_bytes` may be in L2 when a call begins.
    """

    bandwidth_bytes_per_s: float
    l2_bytes: int
    peak_flop_per_s: float | None
    warm_bytes: int = 0


class NeededTraffic(NamedTuple):
    """Bytes moved by a call: probably needed, and certainly needed."""

    read_bytes: int
    written_bytes: int
    certain_read_bytes: int
    certain_written_bytes: int


def traffic(needs: Needs, override: RooflineOverride | None, constants: Mapping[str, Constant]) -> NeededTraffic:
    """Return the necessary traffic. Values given by the problem's author are certain.

    Bytes counted on the meta device and unchangeable by flips (integers) are needed, but not certain.
    """
    changeable = min(needs.input_bytes + needs.state_bytes, needs.read_bytes)
    read = needs.read_bytes - changeable + _part(needs.input_flips) * needs.input_bytes
    read = min(read + _part(needs.state_flips) * needs.state_bytes, needs.read_bytes)
    certain = (
        0.0
        if needs.input_flips is None
        else least_part(needs.input_flips) * min(needs.input_bytes, needs.distinct_input_bytes)
    )
    result = NeededTraffic(int(read), needs.written_bytes, int(certain), min(needs.distinct_bytes, needs.written_bytes))
    if override is not None and override.read_bytes is not None:
        read_bytes = evaluate(override.read_bytes, constants)
        result = result._replace(read_bytes=read_bytes, certain_read_bytes=read_bytes)
    if override is not None and override.written_bytes is not None:
        written_bytes = evaluate(override.written_bytes, constants)
        result = result._replace(written_bytes=written_bytes, certain_written_bytes=written_bytes)
    return result


def attained(
    needs: Needs, roof: Roof, timing: Timing, override: RooflineOverride | None, constants: Mapping[str, Constant]
) -> Roofline:
    """Compare a submission's time with the lower bounds of a call.

    Raises:
        ValueError: the roof is invalid: see `floor_ms`.
    """
    moved = traffic(needs, override, constants)
    flop = needs.flop if override is None or override.flop is None else evaluate(override.flop, constants)
    least_ms = _floor_ms(moved.read_bytes, moved.written_bytes, roof)
    compute_ms = flop / roof.peak_flop_per_s * 1e3 if roof.peak_flop_per_s else 0.0
    taken_ms = timing.submission_median_ms
    return Roofline(
        read_bytes=max(needs.read_bytes, moved.read_bytes),
        written_bytes=moved.written_bytes,
        flop=flop,
        input_flips=needs.input_flips,
        state_flips=needs.state_flips,
        needed_read_bytes=moved.read_bytes,
        bandwidth_bytes_per_s=roof.bandwidth_bytes_per_s,
        l2_bytes=roof.l2_bytes,
        peak_flop_per_s=roof.peak_flop_per_s,
        floor_ms=least_ms,
        impossible_ms=_floor_ms(moved.certain_read_bytes, moved.certain_written_bytes, roof),
        target_ms=max(least_ms, compute_ms),
        of_floor=_rate(least_ms, taken_ms),
        bytes_per_s=_rate((moved.read_bytes + moved.written_bytes) * 1e3, taken_ms),
        flop_per_s=_rate(flop * 1e3, taken_ms) if flop else None,
        override_reason=None if override is None else override.reason,
    )


def is_impossible(roofline: Roofline, timing: Timing) -> bool:
    """Return whether a submission was faster than `impossible_ms` by more than the clock's error.

    The upper end of the median's interval includes that error and the scatter of the samples. If the reference itself
    was faster, the bound is wrong.
    """
    high_ms = timing.submission_high_ms
    return high_ms is not None and high_ms < roofline.impossible_ms and not is_doubtful(roofline, timing)


def is_doubtful(roofline: Roofline, timing: Timing) -> bool:
    """Return whether the reference, which reads all needed bytes, was faster than `impossible_ms`."""
    return timing.reference_high_ms is not None and timing.reference_high_ms < roofline.impossible_ms


def impossible(roofline: Roofline, timing: Timing) -> Finding:
    """Return the finding for a time below `impossible_ms`."""
    message = (
        f"{timing.submission_median_ms:.4g} ms, {timing.submission_high_ms:.4g} ms at most: reading the relevant part "
        f"of {roofline.read_bytes} bytes and writing {roofline.written_bytes} takes this GPU at least "
        f"{roofline.impossible_ms:.4g} ms ({roofline.bandwidth_bytes_per_s / 1e9:.0f} GB/s)"
    )
    return finding(
        Code.IMPOSSIBLE, message, submission_ms=timing.submission_median_ms, impossible_ms=roofline.impossible_ms
    )


def remarks(roofline: Roofline, timing: Timing) -> list[Finding]:
    """Return findings for a wrong bound, or for a target beaten by more than the clock's error."""
    high_ms = timing.submission_high_ms
    if is_doubtful(roofline, timing):
        message = (
            f"the reference took {timing.reference_median_ms:.4g} ms, its floor is {roofline.impossible_ms:.4g} ms"
        )
        return [finding(Code.FLOOR_DOUBTED, message)]
    if high_ms is None or high_ms >= roofline.target_ms:
        return []
    bound = "the reference's operations at the measured peak" if roofline.target_ms > roofline.floor_ms else "the floor"
    message = f"the submission took {timing.submission_median_ms:.4g} ms, {bound} {roofline.target_ms:.4g} ms"
    return [finding(Code.BEATS_TARGET, message, target_ms=roofline.target_ms)]


def _part(flips: Flips | None) -> float:
    return 1.0 if flips is None or not flips.samples else flips.mattered / flips.samples


def _floor_ms(read_bytes: int, written_bytes: int, roof: Roof) -> float:
    return floor_ms(
        read_bytes=max(read_bytes - roof.warm_bytes, 0),
        written_bytes=written_bytes,
        bandwidth_bytes_per_s=roof.bandwidth_bytes_per_s,
        l2_bytes=roof.l2_bytes,
    )


def _rate(amount: float, taken_ms: float) -> float | None:
    rate = amount / taken_ms if taken_ms > 0 else math.inf
    return rate if math.isfinite(rate) else None


def floor_ms(*, read_bytes: int, written_bytes: int, bandwidth_bytes_per_s: float, l2_bytes: int) -> float:
    """Return the time to read `read_bytes` and to write the bytes beyond the L2 capacity, at the measured bandwidth.

    Without warm inputs, which the caller leaves out of `read_bytes`, no input is cached when a call starts (the clock
    overwrites the cache), so every necessary byte is read from memory. Outputs may still be cached when the call ends:
    on an H200 with 63 MB of L2, 37 % of an output of 59 MB never reached memory. A lower bound counts only unavoidable
    traffic.

    Raises:
        ValueError: a size is negative, or the bandwidth is not a positive number.

    >>> floor_ms(read_bytes=4_000_000, written_bytes=1_000_000, bandwidth_bytes_per_s=4e12, l2_bytes=600_000)
    0.0011
    """
    if min(read_bytes, written_bytes, l2_bytes) < 0:
        raise ValueError("a number of bytes is not negative")
    if not 0 < bandwidth_bytes_per_s < float("inf"):
        raise ValueError(f"{bandwidth_bytes_per_s} bytes per second are no bandwidth")
    return (read_bytes + max(0, written_bytes - l2_bytes)) / bandwidth_bytes_per_s * 1e3


def least_part(flips: Flips) -> float:
    """Return the least fraction that matters, with 99.9 % confidence: the exact bound of a binomial proportion.

    At the bound, as many or more samples would matter in one case in a thousand. Source: Clopper and Pearson, The Use
    of Confidence or Fiducial Limits, Biometrika 26, 1934.

    >>> round(least_part(Flips(samples=128, mattered=128)), 3), least_part(Flips(samples=128, mattered=0))
    (0.947, 0.0)
    """
    if not flips.mattered:
        return 0.0
    low, high = 0.0, flips.mattered / flips.samples
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _at_least(flips.mattered, flips.samples, middle) < _DOUBT:
            low = middle
        else:
            high = middle
    return low


def _at_least(mattered: int, samples: int, part: float) -> float:
    """Return the probability of `mattered` or more among `samples`, each with probability `part`."""
    return math.fsum(
        math.comb(samples, count) * part**count * (1 - part) ** (samples - count)
        for count in range(mattered, samples + 1)
    )
