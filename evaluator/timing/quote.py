"""What a grade says of two sides: their medians, the speedup with its interval, and what makes them doubtful."""

import math
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.findings import Code, finding
from evaluator.records import ClockKind, Finding, Samples, Timing, finite_or_none
from evaluator.timing.bootstrap import Bootstrap, Interval
from evaluator.timing.stats import median
from evaluator.timing.warnings import warnings

WIDEST = 0.05
"""Beyond this width, relative to the speedup, an interval leaves nothing to be quoted."""
CLOCK_ERROR_MS = {ClockKind.HOST: 0.0, ClockKind.SEALED: 0.015}
"""How far a clock may be off beside the spread of its empty calls.

After a change of contexts no address is translated and no instruction cached, and a kernel reads up to 15 us high for
it, one kernel more than another (docs/experiments, section 3). The host's clock has no such error that is known."""
_LONGEST = 1 << 12


def clock_error_ms(clock: ClockKind, *, overhead_ms: float, spread_ms: float) -> float:
    """Say how far a time may be off that was measured by a clock whose empty calls take `overhead_ms`.

    What is taken off a host's call was time for the runner too: a submission that answers in a way of its own, or whose
    work overlaps with that of the judge, is quoted with less than it took. By that much at most, for no more is taken
    off; and nobody with more by more than what empty calls spread by. One is never there where the other is.
    """
    return max(overhead_ms, spread_ms) if clock is ClockKind.HOST else spread_ms + CLOCK_ERROR_MS[clock]


class Quote(NamedTuple):
    """The timing as it stands in a card, and what is to be said about it."""

    timing: Timing
    findings: list[Finding]


def quote(clock: ClockKind, before: Samples, submission: Samples, after: Samples) -> Quote:
    """Reduce the two sides; the reference's samples before and after the submission count alike.

    The resolution of the clock (`clock_error_ms`, and for how long a side's work may have begun unseen) is part of
    every interval.
    The speedup is None where its interval is wider than `WIDEST`; it may exclude 1, and be significant, all the same.
    One without an upper end is not: where this clock cannot tell a submission from nothing, an overhead that moved
    would look the same.

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
    """Leave the speedup out of a timing whose two sides did not compute with weights of the same kind."""
    return replace(timing, speedup=None, speedup_low=None, speedup_high=None, significant=None)


def _below_resolution(
    draws: Bootstrap, interval: Interval, ratio: float, resolution_ms: float, unwatched_ms: float
) -> Finding:
    """Say why there is no speedup, and whether calls that take longer would give one."""
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
    """Find the least power of two by which both sides' times must grow, if they scatter in proportion.

    Growing the times is shrinking the resolution. None where the scatter alone is too wide, or nothing was measured.
    """
    if not math.isfinite(ratio):
        return None
    factor = 2
    while factor <= _LONGEST:
        if draws.speedup(resolution_ms / factor).width_of(ratio) <= WIDEST:
            return factor
        factor *= 2
    return None
