"""Bootstrap intervals of two medians and of their ratio.

Each of `DRAWS` draws simulates another grade of the same two programs:

- The reference ran in two processes. A draw samples two of them with replacement, and differences between processes
  widen the interval: a cluster bootstrap (Davison and Hinkley, Bootstrap Methods and their Application, 3.8).
- A draw resamples each side's samples with replacement and takes their median. A median of n draws from sorted samples
  is the sample at n times an order statistic of n uniform numbers, which has a beta distribution. A draw therefore
  costs two random numbers instead of n, and is exact.
- A draw adds the clock's error to each side: uniform within that side's resolution (a rectangular distribution, which
  JCGM 101 prescribes for a limit of error).
- A draw adds a normal error to each side for the choice of the process (`time_errors.py`). The reference's error is
  that of a mean over its processes.

The sorted samples, as multiples of their median, seed the random numbers. The same samples give the same interval, in
any order and in any unit.
"""

import hashlib
import math
import random
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from evaluator.timing.stats import median

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
