"""Quote of a speedup with its interval from the samples of both sides, and the score of several cases. Pure."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.findings import Code, finding
from evaluator.findings.timing import CLOCK_TOO_COARSE, CLOSE_PROGRAMS, GRADE_AGAIN, LARGER_SIZE
from evaluator.records import Baseline, CallKind, CaseResult, ClockKind, Finding, Samples, Score, Timing, finite_or_none
from evaluator.timing.stats import (
    Bootstrap,
    Interval,
    Resolution,
    clock_error_ms,
    interquartile_range,
    median,
    outliers,
    process_spread_ms,
)
from evaluator.timing.warnings import warnings

WIDEST, WIDEST_IN_WINDOWS = 0.15, 0.20
"""Largest width of a quoted speedup's interval, relative to the speedup: the usual one, and that of two sides in
windows on a GPU. A quoted speedup is known to 7.5 % or 10 % on either side.

The spread between processes alone makes an interval of 15 % for a call of 3.2 us in a window, and of 20 % for one of
2.4 us. It is no error that a submission could choose. The error of single calls, and of windows on a host, may be."""
_LONGEST = 1 << 12


def of_one_kind(halves: Sequence[Samples]) -> list[Samples]:
    """Return halves of one side with samples of one kind: calls in windows if all have windows, else single calls.

    Calls of windows that disagree with other measurements are no samples (`Windows.shared_work`).

    >>> of_one_kind([])
    []
    """
    in_windows = all(half.windows is not None and half.windows.call_ms for half in halves)
    return [_with_samples(half, in_windows=in_windows) for half in halves]


def _with_samples(side: Samples, *, in_windows: bool) -> Samples:
    if side.windows is None:
        return side
    times_ms = (side.windows.call_ms if in_windows else side.windows.single_ms) or side.samples_ms
    return replace(
        side,
        samples_ms=times_ms,
        median_ms=median(times_ms),
        iqr_ms=interquartile_range(times_ms),
        outliers=len(outliers(times_ms)),
        windows=side.windows if in_windows else None,
    )


def resolution_of(clock: ClockKind, reference: Sequence[Samples], submission: Samples) -> Resolution:
    """Return the errors of each side's times beyond the scatter of the samples: the clock's, and between processes.

    A single call and a call in a window have the same duration, with different errors: a change of contexts costs up to
    15 us more or less in each single call. In a window that cost occurs once, and is taken off with a single call of
    the same side. Each side therefore has its own resolution.
    """
    sides = *reference, submission
    overhead_ms, spread_ms = max(side.overhead_ms for side in sides), max(side.overhead_iqr_ms for side in sides)
    single_ms = clock_error_ms(clock, overhead_ms=overhead_ms, spread_ms=spread_ms)
    return Resolution(
        max(_error_ms(side, single_ms) for side in reference),
        _error_ms(submission, single_ms),
        process_spread_ms(clock, max(side.median_ms for side in reference)),
        process_spread_ms(clock, submission.median_ms),
    )


def _error_ms(side: Samples, single_ms: float) -> float:
    """Return the error in windows, or that of a single call, with the unwatched time before the call."""
    windows = side.windows
    return single_ms + side.unwatched_ms if windows is None or windows.shared_work else windows.clock_error_ms


class _Ratio(NamedTuple):
    """A ratio of two times, its interval, and the largest width with which it is quoted."""

    value: float
    interval: Interval
    widest: float

    @property
    def is_quoted(self) -> bool:
        return math.isfinite(self.value) and self.interval.width_of(self.value) <= self.widest

    @property
    def too_wide(self) -> str:
        return f"the 95 % interval of the speedup, {_spelled(self.interval)}, is wider than {self.widest:.0%}"


def _widest(clock: ClockKind, sides: Sequence[Samples]) -> float:
    in_windows = clock is ClockKind.SEALED and all(side.kind is CallKind.WINDOWS for side in sides)
    return WIDEST_IN_WINDOWS if in_windows else WIDEST


class Quote(NamedTuple):
    """Timing for the card, with findings."""

    timing: Timing
    findings: list[Finding]


def quote(clock: ClockKind, before: Samples, submission: Samples, after: Samples) -> Quote:
    """Reduce both sides; the reference's samples before and after the submission have equal weight.

    Each side is quoted by calls in windows where it has windows, else by single calls. Every interval includes the
    clock's resolution for that kind of calls, and the spread between processes (`resolution_of`). The speedup is None
    if its interval is wider than `_widest`; such an interval may still exclude 1 and be significant. An interval
    without an upper end is never significant: if the clock cannot tell a submission from an empty call, a drift of the
    overhead would look the same.

    Raises:
        ValueError: a side has no samples.
    """
    (before, after), (submission,) = of_one_kind([before, after]), of_one_kind([submission])
    resolution = resolution_of(clock, [before, after], submission)
    reference_ms = median([*before.samples_ms, *after.samples_ms])
    submission_ms = median(submission.samples_ms)
    draws = Bootstrap([before.samples_ms, after.samples_ms], submission.samples_ms)
    interval = draws.speedup(resolution)
    ratio = _Ratio(
        reference_ms / submission_ms if submission_ms > 0 else math.inf,
        interval,
        _widest(clock, [before, submission, after]),
    )
    reference_interval = draws.reference_ms(resolution)
    submission_interval = draws.submission_ms(resolution)
    timing = Timing(
        clock=clock,
        reference_before=before,
        submission=submission,
        reference_after=after,
        reference_median_ms=reference_ms,
        submission_median_ms=submission_ms,
        speedup=ratio.value if ratio.is_quoted else None,
        resolution_ms=resolution.largest_ms,
        reference_low_ms=reference_interval.low,
        reference_high_ms=reference_interval.high,
        submission_low_ms=submission_interval.low,
        submission_high_ms=submission_interval.high,
        speedup_low=finite_or_none(interval.low),
        speedup_high=finite_or_none(interval.high),
        significant=interval.excludes_one and math.isfinite(interval.high),
    )
    too_wide = [] if ratio.is_quoted else [_not_quoted(before, submission, after, draws, ratio, resolution)]
    return Quote(timing, [*too_wide, *warnings(timing, resolution)])


def over_baseline(baseline: Baseline, submission: Samples, clock: ClockKind) -> Baseline:
    """Return the baseline with the submission's speedup over it, by the rules for the reference (`quote`).

    Each side is quoted by calls in windows if the side has windows, else by single calls. Both kinds are the duration
    of a call, with different errors.
    """
    if baseline.samples is None:
        return baseline
    (other,), (submission,) = of_one_kind([baseline.samples]), of_one_kind([submission])
    taken_ms = median(submission.samples_ms)
    interval = Bootstrap([other.samples_ms], submission.samples_ms).speedup(resolution_of(clock, [other], submission))
    ratio = _Ratio(
        other.median_ms / taken_ms if taken_ms > 0 else math.inf, interval, _widest(clock, [other, submission])
    )
    return replace(
        baseline,
        samples=other,
        speedup=ratio.value if ratio.is_quoted else None,
        speedup_low=finite_or_none(interval.low),
        speedup_high=finite_or_none(interval.high),
        significant=interval.excludes_one and math.isfinite(interval.high),
    )


def unquoted(timing: Timing) -> Timing:
    """Return the timing without a speedup, for sides that computed with different kinds of weights."""
    return replace(timing, speedup=None, speedup_low=None, speedup_high=None, significant=None)


def _not_quoted(
    before: Samples,
    submission: Samples,
    after: Samples,
    draws: Bootstrap,
    ratio: _Ratio,
    resolution: Resolution,
) -> Finding:
    """Return the reason for a missing speedup: two different processes of the reference, the clock, or scatter."""
    halves = [half.samples_ms for half in (before, after) if half.median_ms > 0]
    alike = [[sample_ms / median(half) for sample_ms in half] for half in halves]
    if len(alike) == len((before, after)) and math.isfinite(ratio.value):
        middle_ms = median([*before.samples_ms, *after.samples_ms])
        same = Bootstrap([[relative * middle_ms for relative in half] for half in alike], submission.samples_ms)
        if ratio._replace(interval=same.speedup(resolution)).is_quoted:
            return _processes_differ(before, after, ratio, resolution)
    single = [side for side in (before, submission, after) if side.windows is None or side.windows.shared_work]
    unwatched_ms = max((side.unwatched_ms for side in single), default=0.0)
    return _below_resolution(draws, ratio, resolution, unwatched_ms, (before, submission))


def _processes_differ(before: Samples, after: Samples, ratio: _Ratio, resolution: Resolution) -> Finding:
    """Return the reason for a missing speedup if both halves of the reference with one median would give one."""
    message = (
        f"{ratio.too_wide}: the reference took "
        f"{before.median_ms:.4g} ms in its first process and {after.median_ms:.4g} ms in its second"
    )
    return finding(
        Code.BELOW_RESOLUTION, message, next_step=GRADE_AGAIN, resolution_ms=resolution.largest_ms, longer_factor=None
    )


def _below_resolution(
    draws: Bootstrap,
    ratio: _Ratio,
    resolution: Resolution,
    unwatched_ms: float,
    sides: tuple[Samples, Samples],
) -> Finding:
    """Return the reason for a missing speedup, and whether longer calls would help.

    `sides` are the reference and the submission; the message names the kind of calls with the larger error.
    """
    reference, submission = sides
    kind = (reference if resolution.reference_ms >= resolution.submission_ms else submission).kind
    too_wide = ratio.too_wide
    resolved_ms = resolution.largest_ms
    resolved, taken_ms = f"{_duration(resolved_ms)} in {kind.value}", median(submission.samples_ms)
    factor = _longer(draws, ratio, resolution)
    if resolution.submission_ms >= taken_ms:
        message = f"{too_wide}; the clock's error, {resolved}, exceeds the submission's time, {_duration(taken_ms)}"
        step = CLOCK_TOO_COARSE
    elif factor is None:
        message = f"{too_wide}; the samples scatter too much for longer calls alone to help"
        step = CLOSE_PROGRAMS
    else:
        spread_ms = resolution.largest_spread_ms
        cause = (
            f"the clock resolves {resolved}"
            if resolved_ms >= spread_ms
            else f"processes of one program differ by some {_duration(spread_ms)}"
        )
        message = f"{too_wide}; {cause}: calls {factor} times as long would suffice"
        step = LARGER_SIZE
    if unwatched_ms > 0:
        message += f"; in {unwatched_ms:.3g} ms of the resolution, waiting streams held the GPU before a call began"
    return finding(Code.BELOW_RESOLUTION, message, next_step=step, resolution_ms=resolved_ms, longer_factor=factor)


def _duration(time_ms: float) -> str:
    return f"{time_ms:.3g} ms" if time_ms >= 1 else f"{time_ms * 1e3:.3g} us"


def _spelled(interval: Interval) -> str:
    if math.isinf(interval.low):
        return "unbounded"
    return f"{interval.low:.3g} or more" if math.isinf(interval.high) else f"{interval.low:.3g} to {interval.high:.3g}"


def _longer(draws: Bootstrap, ratio: _Ratio, resolution: Resolution) -> int | None:
    """Return the smallest power of two by which both sides' times must grow, if their scatter grows in proportion.

    Longer times are equivalent to a finer resolution. None if the scatter alone is too wide, or without measured time.
    """
    if not math.isfinite(ratio.value):
        return None
    factor = 2
    while factor <= _LONGEST:
        if ratio._replace(interval=draws.speedup(resolution.finer(factor))).is_quoted:
            return factor
        factor *= 2
    return None


def score_of(cases: Sequence[CaseResult]) -> Score | None:
    """Return the score of the timed cases, without hidden cases; None for fewer than two cases, or without intervals.

    The mean of ratios is geometric: no other mean is independent of the choice of the numerator (P. J. Fleming and
    J. J. Wallace, How not to lie with statistics, Communications of the ACM 29, 1986). The logarithm of the mean is the
    sum of c[i] log S[i], where c[i] is the weight of a case divided by the weight of all timed cases. The
    interval combines the intervals of independent cases, maybe asymmetric, by the method of variance estimates recovery
    (G. Y. Zou, W. Huang, X. Zhang, A note on confidence interval estimation for a linear function of binomial
    proportions, Computational Statistics and Data Analysis 53, 2009):

        low  = mean - sqrt(sum of (c[i] (log S[i] - log low[i]))^2), and high likewise with log high[i] - log S[i].
    """
    cases = [case for case in cases if not case.hidden]
    timed = [case for case in cases if case.is_timed]
    if len(timed) < 2 or any(not _is_measured(case) for case in timed):
        return None
    total = math.fsum(case.weight for case in timed)
    everything = math.fsum(case.weight for case in cases)
    mean = below = above = 0.0
    for case in timed:
        part = case.weight / total
        log_ratio = math.log(_ratio(case))
        mean += part * log_ratio
        low, high = case.speedup_low or 0.0, math.inf if case.speedup_high is None else case.speedup_high
        below += (part * (log_ratio - math.log(low))) ** 2 if low > 0 else math.inf
        above += (part * (math.log(high) - log_ratio)) ** 2 if math.isfinite(high) else math.inf
    speedup, low, high = _exp(mean), _exp(mean - math.sqrt(below)), _exp(mean + math.sqrt(above))
    is_quoted = math.isfinite(speedup) and high - low <= WIDEST * speedup
    return Score(
        speedup=speedup if is_quoted else None,
        speedup_low=finite_or_none(low),
        speedup_high=finite_or_none(high),
        cases=len(timed),
        weight=total / everything,
    )


def _is_measured(case: CaseResult) -> bool:
    """Return whether a case has an interval, and a ratio of the times. Different weights of the sides leave neither."""
    return case.speedup_low is not None and 0 < _ratio(case) < math.inf


def _ratio(case: CaseResult) -> float:
    submission_ms, reference_ms = case.median_ms or 0.0, case.reference_median_ms or 0.0
    return reference_ms / submission_ms if submission_ms > 0 else math.inf


def _exp(logarithm: float) -> float:
    """Return the exponential; infinite where no float is that large."""
    try:
        return math.exp(logarithm)
    except OverflowError:
        return math.inf
