"""Reduction of both sides' samples to medians, a speedup with an interval, and findings about doubts."""

import math
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.findings import Code, finding
from evaluator.records import ClockKind, Finding, Samples, Timing, finite_or_none
from evaluator.timing.bootstrap import Bootstrap, Interval
from evaluator.timing.stats import median
from evaluator.timing.warnings import warnings

WIDEST = 0.05
"""Largest width of a quoted speedup's interval, relative to the speedup."""
CLOCK_ERROR_MS = {ClockKind.HOST: 0.0, ClockKind.SEALED: 0.015}
"""Error of a clock beyond the spread of its empty calls.

A context switch empties the GPU's address translation and instruction caches, and adds up to 15 us to a kernel's time,
more to some kernels than to others (docs/evidence/gpu_experiments.md). The host's clock has no comparable known error.
"""
_LONGEST = 1 << 12


def clock_error_ms(clock: ClockKind, *, overhead_ms: float, spread_ms: float) -> float:
    """Return the largest error of a time, for a clock whose empty calls take `overhead_ms`.

    The host clock subtracts the overhead from each call, but the runner can use this time as well. A submission that
    answers by its own code, or overlaps its work with the judge's, is quoted too low, by at most the overhead. Errors
    in the other direction are at most the spread of empty calls. The two errors exclude each other, so the larger one
    counts.
    """
    return max(overhead_ms, spread_ms) if clock is ClockKind.HOST else spread_ms + CLOCK_ERROR_MS[clock]


class Quote(NamedTuple):
    """Timing for the card, with findings."""

    timing: Timing
    findings: list[Finding]


def quote(clock: ClockKind, before: Samples, submission: Samples, after: Samples) -> Quote:
    """Reduce both sides; the reference's samples before and after the submission have equal weight.

    Every interval includes the clock's resolution: `clock_error_ms`, plus the unwatched time in which a side's work may
    have begun. The speedup is None if its interval is wider than `WIDEST`; such an interval may still exclude 1 and be
    significant. An interval without an upper end is never significant: if the clock cannot tell a submission from an
    empty call, a drift of the overhead would look the same.

    Raises:
        ValueError: a side has no samples.
    """
    sides = (before, submission, after)
    unwatched_ms = max(side.unwatched_ms for side in sides)
    overhead_ms, spread_ms = max(side.overhead_ms for side in sides), max(side.overhead_iqr_ms for side in sides)
    resolution_ms = clock_error_ms(clock, overhead_ms=overhead_ms, spread_ms=spread_ms) + unwatched_ms
    reference_ms = median([*before.samples_ms, *after.samples_ms])
    submission_ms = median(submission.samples_ms)
    draws = Bootstrap([before.samples_ms, after.samples_ms], submission.samples_ms)
    ratio = reference_ms / submission_ms if submission_ms > 0 else math.inf
    interval = draws.speedup(resolution_ms)
    quoted = math.isfinite(ratio) and interval.width_of(ratio) <= WIDEST
    reference_interval, submission_interval = draws.reference_ms(resolution_ms), draws.submission_ms(resolution_ms)
    timing = Timing(
        clock=clock,
        reference_before=before,
        submission=submission,
        reference_after=after,
        reference_median_ms=reference_ms,
        submission_median_ms=submission_ms,
        speedup=ratio if quoted else None,
        resolution_ms=resolution_ms,
        reference_low_ms=reference_interval.low,
        reference_high_ms=reference_interval.high,
        submission_low_ms=submission_interval.low,
        submission_high_ms=submission_interval.high,
        speedup_low=finite_or_none(interval.low),
        speedup_high=finite_or_none(interval.high),
        significant=interval.excludes_one and math.isfinite(interval.high),
    )
    too_wide = [] if quoted else [_below_resolution(draws, interval, ratio, resolution_ms, unwatched_ms)]
    return Quote(timing, [*too_wide, *warnings(timing)])


def unquoted(timing: Timing) -> Timing:
    """Return the timing without a speedup, for sides that computed with different kinds of weights."""
    return replace(timing, speedup=None, speedup_low=None, speedup_high=None, significant=None)


def _below_resolution(
    draws: Bootstrap, interval: Interval, ratio: float, resolution_ms: float, unwatched_ms: float
) -> Finding:
    """Return the reason for a missing speedup, and whether longer calls would help."""
    found = f"the 95 % interval of the speedup, {_spelled(interval)}, is wider than {WIDEST:.0%}"
    factor = _longer(draws, ratio, resolution_ms)
    if factor is None:
        message = f"{found}; the samples scatter too much for longer calls alone to help"
    else:
        message = (
            f"{found}; the clock resolves {resolution_ms * 1e3:.3g} us: calls {factor} times as long would suffice"
        )
    if unwatched_ms > 0:
        message += f"; in {unwatched_ms:.3g} ms of the resolution, waiting streams held the GPU before a call began"
    return finding(Code.BELOW_RESOLUTION, message, resolution_ms=resolution_ms, longer_factor=factor)


def _spelled(interval: Interval) -> str:
    if math.isinf(interval.low):
        return "unbounded"
    return f"{interval.low:.3g} or more" if math.isinf(interval.high) else f"{interval.low:.3g} to {interval.high:.3g}"


def _longer(draws: Bootstrap, ratio: float, resolution_ms: float) -> int | None:
    """Return the smallest power of two by which both sides' times must grow, if their scatter grows in proportion.

    Longer times are equivalent to a finer resolution. None if the scatter alone is too wide, or without measured time.
    """
    if not math.isfinite(ratio):
        return None
    factor = 2
    while factor <= _LONGEST:
        if draws.speedup(resolution_ms / factor).width_of(ratio) <= WIDEST:
            return factor
        factor *= 2
    return None
