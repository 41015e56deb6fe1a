"""Statistics with 95 % intervals over many submissions. Pure."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from evaluator.text import significant

NORMAL_95 = 1.959963984540054
# Student's t at 0.975, for 1 to 30 degrees of freedom; beyond, a series about the normal quantile is exact to 1e-4.
_T = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281),
    *(2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860),
    *(2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423),
)


class Estimate(NamedTuple):
    """A number with its 95 % interval; an unbounded end is None."""

    value: float
    low: float | None
    high: float | None


def share(part: float, whole: int) -> Estimate | None:
    """Return `part` of `whole` with Wilson's interval, which remains valid at 0 and 1; None for an empty whole.

    `part` may be a sum of numbers between 0 and 1: their variance is at most that of zeros and ones with the same mean.

    >>> share(0, 10)
    Estimate(value=0.0, low=0.0, high=0.2775327998628892)
    """
    if whole == 0:
        return None
    mean, squared = part / whole, NORMAL_95**2
    middle = (mean + squared / (2 * whole)) / (1 + squared / whole)
    half = NORMAL_95 * math.sqrt(mean * (1 - mean) / whole + squared / (4 * whole**2)) / (1 + squared / whole)
    # Rounding must not move an end past the value.
    return Estimate(mean, max(0.0, min(middle - half, mean)), min(1.0, max(middle + half, mean)))


def geometric_mean(values: Sequence[float]) -> Estimate | None:
    """Return the geometric mean of positive numbers, with Student's interval of their logarithms.

    >>> geometric_mean([2.0, 8.0]).value
    4.0
    """
    if not values:
        return None
    logs = [math.log(value) for value in values]
    mean = math.fsum(logs) / len(logs)
    if len(logs) == 1:
        return Estimate(math.exp(mean), None, None)
    half = scatter_95(logs)
    return Estimate(math.exp(mean), _exp(mean - half), _exp(mean + half))


def scatter_95(values: Sequence[float]) -> float:
    """Return half the width of Student's 95 % interval for the mean of at least two numbers."""
    mean = math.fsum(values) / len(values)
    # `statistics.stdev` uses exact fractions: a second for the numbers of a large run.
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return student_95(len(values) - 1) * math.sqrt(variance / len(values))


def student_95(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's t for a number of degrees of freedom.

    >>> round(student_95(60), 3)
    2.0
    """
    if freedom <= len(_T):
        return _T[freedom - 1]
    z = NORMAL_95
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _exp(exponent: float) -> float | None:
    try:
        return math.exp(exponent)
    except OverflowError:
        return None


NOTHING = "-"


def document_of(value: Any) -> Any:
    """Return a value for JSON: a named tuple as an object, and each key as text.

    >>> document_of({0.5: Estimate(1.0, None, 2.0)})
    {'0.5': {'value': 1.0, 'low': None, 'high': 2.0}}
    """
    fields = value._asdict() if hasattr(value, "_asdict") else value
    if not isinstance(fields, dict):
        return value
    return {f"{key:g}" if isinstance(key, float) else str(key): document_of(each) for key, each in fields.items()}


def percent(value: Estimate | None) -> str:
    """Format a share, or its absence."""
    return NOTHING if value is None else percentage(value.value)


def percentage(value: float) -> str:
    """Format a share as a percentage."""
    return f"{value * 100:.1f} %"


def factor(value: float) -> str:
    """Format a ratio."""
    return f"{significant(value)}x"


def between(value: Estimate | None, spell: Any) -> str:
    """Format an interval by `spell`; an unbounded interval as nothing."""
    if value is None or value.low is None or value.high is None:
        return NOTHING
    return f"{spell(value.low)} to {spell(value.high)}"
