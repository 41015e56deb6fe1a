"""Statistics of a side's samples, and bootstrap intervals of two medians and of their ratio.

No sample is dropped: outliers are counted. Each of `DRAWS` draws simulates another grade of the same two programs:

- The reference ran in two processes. A draw samples two of them with replacement, and differences between processes
  widen the interval: a cluster bootstrap (Davison and Hinkley, Bootstrap Methods and their Application, 3.8).
- A draw resamples each side's samples with replacement and takes their median. A median of n draws from sorted samples
  is the sample at n times an order statistic of n uniform numbers, which has a beta distribution. A draw therefore
  costs two random numbers instead of n, and is exact.
- A draw adds the clock's error to each side: uniform within that side's resolution (a rectangular distribution, which
  JCGM 101 prescribes for a limit of error).
- A draw adds a normal error to each side for the choice of the process (`process_spread_ms`). The reference's error is
  that of a mean over its processes.

The sorted samples, as multiples of their median, seed the random numbers. The same samples give the same interval, in
any order and in any unit.
"""

import hashlib
import math
import random
import statistics
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

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

The reference's two processes may differ by more: a cluster bootstrap (`Bootstrap`) adds their own difference. Part
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


DRAWS = 4000
_TAIL = 0.025
_LOG_4, _PRETEST = math.log(4), 1 + math.log(4.5)
_LEAST, _MOST = 1e-7, 0.9999999
"""Limits of a uniform number, whose logarithm would else be infinite."""


class Interval(NamedTuple):
    """A 95 % interval in the unit of the quantity. An unbounded end is infinite."""

    low: float
    high: float

    @property
    def excludes_one(self) -> bool:
        """Whether 1 is outside the interval: for a ratio, whether the difference is significant."""
        return self.low > 1 or self.high < 1

    def width_of(self, value: float) -> float:
        """Return the width relative to `value`.

        >>> Interval(1.9, 2.1).width_of(2.0)
        0.10000000000000009
        """
        return (self.high - self.low) / value if value > 0 else math.inf


class Resolution(NamedTuple):
    """Errors of each side's times beyond the scatter of the samples, in ms.

    `reference_ms` and `submission_ms` are the clock's largest errors. The spreads are standard deviations of the median
    time from one process of a program to another.
    """

    reference_ms: float
    submission_ms: float
    reference_spread_ms: float = 0.0
    submission_spread_ms: float = 0.0

    @property
    def largest_ms(self) -> float:
        """The larger one of the clock's errors."""
        return max(self.reference_ms, self.submission_ms)

    @property
    def largest_spread_ms(self) -> float:
        """The larger spread between processes."""
        return max(self.reference_spread_ms, self.submission_spread_ms)

    def finer(self, factor: int) -> "Resolution":
        """Return the resolution with all errors divided by `factor`."""
        return Resolution(*(error_ms / factor for error_ms in self))


class Bootstrap:
    """Draws for one reference, measured in several runs, and one submission. All times are in ms; no list is empty."""

    def __init__(self, reference_runs_ms: Sequence[Sequence[float]], submission_ms: Sequence[float]) -> None:
        """Make the draws. All resolutions share the same draws."""
        runs = sorted(sorted(run) for run in reference_runs_ms)
        submission = sorted(submission_ms)
        generator = random.Random(_seed([*runs, submission]))  # noqa: S311 - statistics, not secrets
        choice, uniform = generator.choice, generator.random
        pools = [[_resampled_median(sorted([*one, *other]), uniform) for other in runs] for one in runs]
        of_submission = _resampled_median(submission, uniform)
        self._reference_ms: list[float] = []
        self._submission_ms: list[float] = []
        # The clock's errors are multiples of a resolution.
        self._reference_error: list[float] = []
        self._submission_error: list[float] = []
        for _ in range(DRAWS):
            self._reference_ms.append(choice(choice(pools))())
            self._submission_ms.append(of_submission())
            self._reference_error.append(2 * uniform() - 1)
            self._submission_error.append(2 * uniform() - 1)
        # Errors of processes are multiples of a spread.
        self._of_process = [_two_normals(uniform) for _ in range(DRAWS)]
        self._processes = len(runs)

    def reference_ms(self, resolution: Resolution) -> Interval:
        """Return the interval of the reference's median time."""
        return _interval([max(each_ms, 0.0) for each_ms in self._reference_with(resolution)])

    def submission_ms(self, resolution: Resolution) -> Interval:
        """Return the interval of the submission's median time."""
        return _interval([max(each_ms, 0.0) for each_ms in self._submission_with(resolution)])

    def speedup(self, resolution: Resolution) -> Interval:
        """Return the interval of the ratio reference over submission; infinite if the submission may take no time."""
        return _interval(list(map(_ratio, self._reference_with(resolution), self._submission_with(resolution))))

    def _reference_with(self, resolution: Resolution) -> list[float]:
        limit_ms, spread_ms = resolution.reference_ms, resolution.reference_spread_ms / math.sqrt(self._processes)
        drawn = zip(self._reference_ms, self._reference_error, self._of_process, strict=True)
        return [median_ms + error * limit_ms + normal * spread_ms for median_ms, error, (normal, _) in drawn]

    def _submission_with(self, resolution: Resolution) -> list[float]:
        limit_ms, spread_ms = resolution.submission_ms, resolution.submission_spread_ms
        drawn = zip(self._submission_ms, self._submission_error, self._of_process, strict=True)
        return [median_ms + error * limit_ms + normal * spread_ms for median_ms, error, (_, normal) in drawn]


def _two_normals(uniform: Callable[[], float]) -> tuple[float, float]:
    """Return two standard normal numbers, independent of each other.

    G. E. P. Box and M. E. Muller, A Note on the Generation of Random Normal Deviates (Annals of Mathematical
    Statistics, 1958). Python may change `random.gauss`; finished cards need the same numbers.
    """
    radius, angle = math.sqrt(-2 * math.log(1 - uniform())), math.tau * uniform()
    return radius * math.cos(angle), radius * math.sin(angle)


def _resampled_median(ordered: Sequence[float], uniform: Callable[[], float]) -> Callable[[], float]:
    """Return a function that draws the median of a resample of `ordered` with replacement.

    The numbers are those of `random.betavariate`, in two thirds of the time: the constants of each gamma distribution
    are computed once. Python may change `betavariate`. Cards hold intervals from these numbers, and
    `check-card` computes the intervals again.
    """
    count = len(ordered)
    ordered = [*ordered, ordered[-1]]  # A place may be rounded to 1.
    rank = (count + 1) // 2
    below, above = _gamma(rank, uniform), _gamma(count + 1 - rank, uniform)

    def odd() -> float:
        gap = below()
        position = gap / (gap + above()) if gap else 0.0
        return ordered[int(position * count)]

    if count % 2:
        return odd
    between, rest = _gamma(1, uniform), _gamma(count - rank, uniform)

    def even() -> float:
        gap = below()
        position = gap / (gap + above()) if gap else 0.0
        lower = ordered[int(position * count)]
        # The next uniform number is the minimum of the rest above the current.
        if gap := between():
            position += (1 - position) * (gap / (gap + rest()))
        return (lower + ordered[int(position * count)]) / 2

    return even


def _gamma(alpha: int, uniform: Callable[[], float]) -> Callable[[], float]:
    """Return a function that draws from a gamma distribution.

    The algorithm for `alpha` above 1 is GA of R. C. H. Cheng, The Generation of Gamma Variables with Non-Integral Shape
    Parameters (Applied Statistics, 1977). The pretest without logarithm has Cheng's constant, 1 + log(4.5).
    """
    log, exp = math.log, math.exp
    if alpha == 1:
        return lambda: -log(1 - uniform())
    width = math.sqrt(2 * alpha - 1)
    offset, slope = alpha - _LOG_4, alpha + width

    def drawn() -> float:
        while True:
            first = uniform()
            if not _LEAST < first < _MOST:
                continue
            second = 1 - uniform()
            exponent = log(first / (1 - first)) / width
            draw = alpha * exp(exponent)
            product = first * first * second
            excess = offset + slope * exponent - draw
            if excess + _PRETEST - 4.5 * product >= 0 or excess >= log(product):
                return draw

    return drawn


def _ratio(reference_ms: float, submission_ms: float) -> float:
    return max(reference_ms, 0.0) / submission_ms if submission_ms > 0 else math.inf


def _interval(values: list[float]) -> Interval:
    values.sort()
    cut = int(_TAIL * len(values))
    return Interval(values[cut], values[-1 - cut])


def _seed(sides: Sequence[Sequence[float]]) -> int:
    """Return a seed made of the samples. Only ratios of samples enter: the unit does not matter."""
    unit = median([value for side in sides for value in side]) or 1.0
    digest = hashlib.blake2b(digest_size=8)
    for side in sides:
        digest.update(struct.pack(f"<q{len(side)}d", len(side), *(value / unit for value in side)))
    return int.from_bytes(digest.digest(), "little")
