"""Contradictions between the samples of a card and the card's medians, speedups and intervals. Pure.

Medians, speedups and the order of an interval's ends are checked in cards of every version. Intervals are recomputed
only in cards of the current version: earlier versions followed other rules.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.records import SCHEMA_VERSION, Baseline, BaselineKind, Samples, Scorecard, Timing, Windows
from evaluator.timing.quote import Quote, over_baseline, quote, unquoted
from evaluator.timing.stats import median

SAME = 1e-6
"""Relative error of recomputed numbers, for example by another version of Python."""
_LEAST_CALLS = 2
_MOST_BASELINES = 2 * len(BaselineKind)
"""Each program is timed at most with PyTorch's default for TF32 and with the problem's own setting."""
_SPEEDUPS = ("speedup_low", "speedup_high")
_INTERVALS = ("reference_low_ms", "reference_high_ms", "submission_low_ms", "submission_high_ms", *_SPEEDUPS)


class Contradiction(NamedTuple):
    """A contradiction: the field of the card, and the explanation."""

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


def contradictions_of_times(card: Scorecard, *, intervals: bool) -> Iterator[Contradiction]:
    """Return the contradictions in the times of both sides and of other baselines.

    With `intervals`, recompute the intervals of a card of the current version, in 0.1 s.
    """
    timing = card.timing
    if len(card.baselines) > _MOST_BASELINES:
        yield Contradiction("baselines", f"{len(card.baselines)}, but a grade times at most {_MOST_BASELINES}")
        return  # Each baseline costs a recomputation.
    untrue = [] if timing is None else list(_sides(timing))
    for number, baseline in enumerate(card.baselines):
        if baseline.samples is not None:
            untrue += _samples(f"baselines[{number}].samples", baseline.samples)
    yield from untrue
    if untrue:
        return  # No statistics without valid samples.
    for number, baseline in enumerate(card.baselines):
        yield from _baseline(f"baselines[{number}]", baseline, timing, card.schema_version)
    if timing is None:
        return
    yield from _timing(card, timing)
    if intervals and card.schema_version == SCHEMA_VERSION:
        yield from _intervals(card, timing)
        yield from _intervals_of_baselines(card, timing)


def _timing(card: Scorecard, timing: Timing) -> Iterator[Contradiction]:
    of_reference = [*timing.reference_before.samples_ms, *timing.reference_after.samples_ms]
    reference_ms, submission_ms = median(of_reference), median(timing.submission.samples_ms)
    yield from _differs("timing.reference_median_ms", timing.reference_median_ms, reference_ms)
    yield from _differs("timing.submission_median_ms", timing.submission_median_ms, submission_ms)
    ratio = _ratio(reference_ms, submission_ms)
    if timing.speedup is not None:
        yield from _differs("timing.speedup", timing.speedup, ratio)
        if not card.has_like_weights:
            yield Contradiction("timing.speedup", "quoted, although only the reference's weights changed")
    yield from _outside("timing.reference", "_ms", timing.reference_low_ms, reference_ms, timing.reference_high_ms)
    yield from _outside("timing.submission", "_ms", timing.submission_low_ms, submission_ms, timing.submission_high_ms)
    yield from _speedup("timing", timing, ratio)


def _baseline(field: str, baseline: Baseline, timing: Timing | None, version: int) -> Iterator[Contradiction]:
    """Check a baseline's speedup against the medians of both sides.

    Earlier versions quoted some speedups by single calls of a submission whose card has windows alone: there, the
    speedup itself replaces the ratio.
    """
    if baseline.samples is None or timing is None:
        without = "samples" if baseline.samples is None else "times of the submission"
        for name in ("speedup", *_SPEEDUPS, "significant"):
            if getattr(baseline, name) is not None:
                yield Contradiction(f"{field}.{name}", f"present without {without}")
        return
    ratio: float | None = baseline.speedup
    if version == SCHEMA_VERSION:
        ratio = _ratio(baseline.samples.median_ms, median(timing.submission.samples_ms))
        if baseline.speedup is not None:
            yield from _differs(f"{field}.speedup", baseline.speedup, ratio)
    yield from _speedup(field, baseline, ratio)


def _ratio(reference_ms: float, submission_ms: float) -> float:
    return reference_ms / submission_ms if submission_ms > 0 else math.inf


def _speedup(field: str, quoted: Timing | Baseline, ratio: float | None) -> Iterator[Contradiction]:
    """Check that the interval of a speedup includes the ratio, and excludes 1 if significant."""
    low, high = quoted.speedup_low, quoted.speedup_high
    if ratio is not None:
        yield from _outside(f"{field}.speedup", "", low, ratio, high)
    elif low is not None and high is not None and low > high:
        yield Contradiction(f"{field}.speedup_low", f"is {low:.6g}, above the upper end {high:.6g}")
    if quoted.significant is True and not ((low is not None and low > 1) or (high is not None and high < 1)):
        yield Contradiction(f"{field}.significant", "true, although the interval includes 1")


def _outside(field: str, unit: str, low: float | None, value: float, high: float | None) -> Iterator[Contradiction]:
    """Check that an interval includes its value. An end may be missing."""
    tolerance = abs(value) * SAME if math.isfinite(value) else 0.0
    if low is not None and low > value + tolerance:
        yield Contradiction(f"{field}_low{unit}", f"is {low:.6g}, above the value {value:.6g}")
    if high is not None and high < value - tolerance:
        yield Contradiction(f"{field}_high{unit}", f"is {high:.6g}, below the value {value:.6g}")


def _sides(timing: Timing) -> Iterator[Contradiction]:
    for name in ("reference_before", "submission", "reference_after"):
        side: Samples = getattr(timing, name)
        yield from _samples(f"timing.{name}", side)
        if side.windows is not None:
            yield from _windows(f"timing.{name}", side, side.windows)


def _samples(field: str, side: Samples) -> Iterator[Contradiction]:
    numbers = (*side.samples_ms, side.overhead_ms, side.overhead_iqr_ms, side.unwatched_ms)
    if not side.samples_ms:
        yield Contradiction(f"{field}.samples_ms", "no samples")
    elif min(numbers) < 0:
        yield Contradiction(field, "negative time")
    else:
        yield from _differs(f"{field}.median_ms", side.median_ms, median(side.samples_ms))


def _windows(field: str, side: Samples, windows: Windows) -> Iterator[Contradiction]:
    times_ms = (*windows.single_ms, *windows.spot_ms, windows.clock_error_ms, windows.raised_ms)
    if len(windows.calls) != len(windows.window_ms) or min(windows.calls, default=0) < _LEAST_CALLS:
        yield Contradiction(f"{field}.windows", "no windows of two calls or more")
    elif not windows.single_ms or min(times_ms) < 0:
        yield Contradiction(f"{field}.windows", "no single calls, or a negative time")
    elif side.samples_ms != windows.call_ms:
        yield Contradiction(f"{field}.samples_ms", "not the times of calls in the windows")


def _intervals(card: Scorecard, timing: Timing) -> Iterator[Contradiction]:
    again = requoted(card, timing).timing
    yield from _differs("timing.resolution_ms", timing.resolution_ms, again.resolution_ms)
    for name in _INTERVALS:
        yield from _differs(f"timing.{name}", getattr(timing, name), getattr(again, name))
    yield from _unjustified("timing", timing, again)


def _intervals_of_baselines(card: Scorecard, timing: Timing) -> Iterator[Contradiction]:
    for number, (baseline, requoted) in enumerate(zip(card.baselines, requoted_baselines(card, timing), strict=True)):
        field = f"baselines[{number}]"
        for name in _SPEEDUPS:
            yield from _differs(f"{field}.{name}", getattr(baseline, name), getattr(requoted, name))
        if baseline.samples is not None and requoted.samples is not None:
            yield from _differs(f"{field}.samples.median_ms", baseline.samples.median_ms, requoted.samples.median_ms)
        yield from _unjustified(field, baseline, requoted)


def _unjustified(field: str, quoted: Timing | Baseline, requoted: Timing | Baseline) -> Iterator[Contradiction]:
    """Check that the samples justify a quoted speedup, and its significance."""
    if quoted.speedup is not None and requoted.speedup is None:
        yield Contradiction(f"{field}.speedup", "quoted, although its interval is too wide")
    if quoted.significant is True and requoted.significant is False:
        yield Contradiction(f"{field}.significant", "true, although the interval includes 1")


def _differs(field: str, recorded: float | None, recomputed: float | None) -> Iterator[Contradiction]:
    if recorded is None and recomputed is None:
        return
    if recorded is None or recomputed is None or not math.isclose(recorded, recomputed, rel_tol=SAME, abs_tol=1e-12):
        yield Contradiction(field, f"is {_number_text(recorded)}, but the samples give {_number_text(recomputed)}")


def _number_text(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"


def requoted(card: Scorecard, timing: Timing) -> Quote:
    """Return the statistics of the card's samples. Sides with weights of different kinds have no speedup (C421)."""
    new_quote = quote(timing.clock, timing.reference_before, timing.submission, timing.reference_after)
    return new_quote if card.has_like_weights else new_quote._replace(timing=unquoted(new_quote.timing))


def requoted_baselines(card: Scorecard, timing: Timing) -> list[Baseline]:
    """Return the card's baselines with the submission's speedup over each."""
    if not card.has_like_weights:
        no_speedup = {"speedup": None, "speedup_low": None, "speedup_high": None, "significant": None}
        return [replace(baseline, **no_speedup) for baseline in card.baselines]
    return [
        over_baseline(baseline, timing.submission, timing.clock)
        if baseline.samples is None or baseline.samples.samples_ms
        else baseline
        for baseline in card.baselines
    ]
