"""Statistics of a side's samples. No sample is dropped: outliers are counted."""

import math
import statistics
from collections.abc import Sequence

from evaluator.records import ClockKind

_TO_SIGMA = 1.4826
"""Ratio of a normal distribution's standard deviation to its median absolute deviation."""
_LEAST_SIGMA = 0.001
"""Relative to the median: if most values are equal, a clock tick is no outlier."""
_FAR = 10.0
_QUARTILES = 1.349
"""Distance between the quartiles of a normal distribution, in standard deviations."""
_NORMAL_95 = 1.96


def median(values: Sequence[float]) -> float:
    """Return the median.

    >>> median([3.0, 1.0, 2.0])
    2.0
    """
    return statistics.median(values)


def interquartile_range(values: Sequence[float]) -> float:
    """Return the width of the middle half.

    >>> interquartile_range([1.0, 2.0, 3.0, 4.0])
    1.5
    """
    if len(values) < 2:
        return 0.0
    lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
    return upper - lower


def lower_quartile(values: Sequence[float]) -> float:
    """Return the largest of the least quarter of the values, at least one.

    Other work on the GPU makes some calls longer, and none shorter: the lower quartile of a few calls varies less than
    their median.

    >>> lower_quartile([4.0, 9.0, 3.0, 5.0, 6.0, 7.0, 8.0, 2.0])
    3.0
    >>> lower_quartile([2.0])
    2.0
    """
    return sorted(values)[max(len(values) // 4 - 1, 0)]


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return a 95 % interval of the median from order statistics, without assumptions about the distribution.

    The interval costs one sort, so it can decide after every call whether there are enough samples; `quote` computes
    the quoted interval. The number of samples below the median is binomial with p = 1/2, so the ends are about 0.98
    sqrt(n) from the middle.

    >>> median_interval([float(value) for value in range(1, 101)])
    (41.0, 60.0)
    """
    ordered = sorted(values)
    half = 0.98 * math.sqrt(len(ordered))
    low = max(math.ceil(len(ordered) / 2 - half) - 1, 0)
    high = min(math.ceil(len(ordered) / 2 + half) - 1, len(ordered) - 1)
    return ordered[low], ordered[high]


def median_error(values: Sequence[float]) -> float:
    """Return half the width of a 95 % interval of the median, for values of a normal distribution.

    The standard error of a median is sqrt(pi / 2) of the mean's; the quartiles give the standard deviation.

    >>> round(median_error([float(value) for value in range(100)]), 2)
    9.01
    """
    sigma = interquartile_range(values) / _QUARTILES
    return _NORMAL_95 * math.sqrt(math.pi / 2 / len(values)) * sigma


def outliers(values: Sequence[float]) -> list[float]:
    """Return the values more than ten standard deviations from the median, in their order.

    The standard deviation comes from the median absolute deviation, which is robust against outliers (Iglewicz and
    Hoaglin, How to Detect and Handle Outliers, 1993: the modified z-score). Its minimum is a thousandth of the median.

    >>> outliers([1.0, 1.1, 0.9, 1.0, 1.2, 5.0])
    [5.0]
    """
    if not values:
        return []
    middle = median(values)
    distances = [abs(value - middle) for value in values]
    sigma = max(_TO_SIGMA * median(distances), _LEAST_SIGMA * middle)
    return [value for value, distance in zip(values, distances, strict=True) if distance > _FAR * sigma]


CLOCK_ERROR_MS = {ClockKind.HOST: 0.0, ClockKind.SEALED: 0.015}
"""Error of a clock beyond the spread of its empty calls.

A context switch empties the GPU's address translation and instruction caches, and adds up to 15 us to a kernel's time,
more to some kernels than to others (docs/measured.md). The host's clock has no comparable known error.
"""
_SPREAD_MS = 0.0001
_SPREAD = 0.0003
"""Standard deviation of a median time from one process to another: a constant part, and a part of the time.

Estimated from 195 processes of 39 references, 2.6 to 390 us, on an H100: `python -m benchmarks.timing.process_spread`,
by maximum likelihood, says 0.105 us (0.085 to 0.125) and 0.03 % (0 to 0.14 %). The cause must be in the process: the
same process repeats its median to 0.03 us below 20 us when it is timed again, between sides of other processes. No call
above 390 us is in the data; there the scatter of samples and the clock's error decide. A grade cannot measure the
spread: the reference has two processes, and the submission one. So the spread is a pooled estimate from earlier
measurements (JCGM 100:2008, 4.2.4), and enters the interval as a normal error of each process.

The reference's two processes may differ by more: a cluster bootstrap (`bootstrap.py`) adds their own difference. Part
of the spread is thus counted twice. Alone, the spread would miss disturbances between both halves; the difference of
two processes alone has a single degree of freedom, and is often small by chance."""


def clock_error_ms(clock: ClockKind, *, overhead_ms: float, spread_ms: float) -> float:
    """Return the largest error of a time, for a clock whose empty calls take `overhead_ms`.

    The host clock subtracts the overhead from each call, but the runner can use this time as well. A submission that
    answers by its own code, or overlaps its work with the judge's, is quoted too low, by at most the overhead. Errors
    in the other direction are at most the spread of empty calls. The two errors exclude each other, so the larger one
    counts.
    """
    return max(overhead_ms, spread_ms) if clock is ClockKind.HOST else spread_ms + CLOCK_ERROR_MS[clock]


def process_spread_ms(clock: ClockKind, time_ms: float) -> float:
    """Return the standard deviation of a median of `time_ms` between processes, in ms. None is known for the host."""
    match clock:
        case ClockKind.SEALED:
            return math.hypot(_SPREAD_MS, _SPREAD * time_ms)
        case ClockKind.HOST:
            return 0.0
