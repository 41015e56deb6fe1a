"""The few statistics that a grade quotes."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from evaluator.findings import Code, finding
from evaluator.records import Finding, Samples

_DRIFT = 0.10
_RESOLUTIONS = 5.0
_QUIET = 1.0


class Quote(NamedTuple):
    """What is said of two sides. `speedup` is None where the clock cannot tell."""

    reference_median_ms: float
    submission_median_ms: float
    speedup: float | None
    resolution_ms: float
    findings: list[Finding]


def median(values: Sequence[float]) -> float:
    """Give the middle value.

    >>> median([3.0, 1.0, 2.0])
    2.0
    """
    return statistics.median(values)


def interquartile_range(values: Sequence[float]) -> float:
    """Give the width of the middle half.

    >>> interquartile_range([1.0, 2.0, 3.0, 4.0])
    1.5
    """
    if len(values) < 2:
        return 0.0
    lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
    return upper - lower


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Give a 95 % interval of the median, from order statistics: it supposes nothing about the distribution.

    The number of samples below the median is binomial with p = 1/2, so its ends lie about 0.98 sqrt(n) from the middle.

    >>> median_interval([float(value) for value in range(1, 101)])
    (41.0, 60.0)
    """
    ordered = sorted(values)
    half = 0.98 * math.sqrt(len(ordered))
    low = max(math.ceil(len(ordered) / 2 - half) - 1, 0)
    high = min(math.ceil(len(ordered) / 2 + half) - 1, len(ordered) - 1)
    return ordered[low], ordered[high]


def quote(before: Samples, submission: Samples, after: Samples) -> Quote:
    """Reduce the two sides: medians, their ratio, and what makes the ratio doubtful.

    The reference's samples before and after the submission count alike. The resolution is the spread of a call that
    does nothing; a side within a few of those has no ratio.
    """
    reference_ms = median([*before.samples_ms, *after.samples_ms])
    submission_ms = submission.median_ms
    resolution_ms = max(side.overhead_iqr_ms for side in (before, submission, after))
    findings = []
    if abs(before.median_ms - after.median_ms) > _DRIFT * reference_ms:
        findings.append(
            finding(
                Code.REFERENCE_DRIFTED,
                f"the reference took {before.median_ms:.4g} ms before and {after.median_ms:.4g} ms after",
            )
        )
    if resolution_ms > _QUIET * before.overhead_ms:
        findings.append(
            finding(
                Code.NOT_QUIET,
                f"an empty call takes {before.overhead_ms:.3g} ms, give or take {resolution_ms:.3g} ms",
            )
        )
    speedup = reference_ms / submission_ms if submission_ms > 0 else None
    if speedup is None or min(reference_ms, submission_ms) < _RESOLUTIONS * resolution_ms:
        speedup = None
        findings.append(
            finding(
                Code.BELOW_RESOLUTION,
                f"{min(reference_ms, submission_ms):.3g} ms is too near the clock's own {resolution_ms:.3g} ms",
            )
        )
    return Quote(reference_ms, submission_ms, speedup, resolution_ms, findings)
