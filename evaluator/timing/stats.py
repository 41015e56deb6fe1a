"""The plain statistics of one side's samples. No sample is ever dropped: what lies far off is counted."""

import math
import statistics
from collections.abc import Sequence

_TO_SIGMA = 1.4826
"""A normal distribution's standard deviation, over its median absolute deviation."""
_LEAST_SIGMA = 0.001
"""Relative to the median: where most values are one, a step of the clock is no outlier."""
_FAR = 10.0


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

    It costs one sort, so it can tell after every call whether there are enough; what is quoted is `quote`'s. The
    number of samples below the median is binomial with p = 1/2, so its ends lie about 0.98 sqrt(n) from the middle.

    >>> median_interval([float(value) for value in range(1, 101)])
    (41.0, 60.0)
    """
    ordered = sorted(values)
    half = 0.98 * math.sqrt(len(ordered))
    low = max(math.ceil(len(ordered) / 2 - half) - 1, 0)
    high = min(math.ceil(len(ordered) / 2 + half) - 1, len(ordered) - 1)
    return ordered[low], ordered[high]


def outliers(values: Sequence[float]) -> list[float]:
    """List the values more than ten standard deviations from the median, in their order.

    The standard deviation is taken from the median absolute deviation, which outliers hardly move (Iglewicz and
    Hoaglin, How to Detect and Handle Outliers, 1993: the modified z-score), and is a thousandth of the median at least.

    >>> outliers([1.0, 1.1, 0.9, 1.0, 1.2, 5.0])
    [5.0]
    """
    if not values:
        return []
    middle = median(values)
    distances = [abs(value - middle) for value in values]
    sigma = max(_TO_SIGMA * median(distances), _LEAST_SIGMA * middle)
    return [value for value, distance in zip(values, distances, strict=True) if distance > _FAR * sigma]
