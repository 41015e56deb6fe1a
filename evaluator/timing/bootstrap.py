"""Bootstrap intervals of two medians and of their ratio.

Each of `DRAWS` draws simulates another grade of the same two programs:

- The reference ran in two processes. A draw samples two of them with replacement, and differences between processes
  widen the interval: a cluster bootstrap (Davison and Hinkley, Bootstrap Methods and their Application, 3.8).
- A draw resamples each side's samples with replacement and takes their median. A median of n draws from sorted samples
  is the sample at n times an order statistic of n uniform numbers, which has a beta distribution. A draw therefore
  costs two random numbers instead of n, and is exact.
- A draw adds the clock's error to each side: uniform within that side's resolution (a rectangular distribution, which
  JCGM 101 prescribes for a limit of error).

The sorted samples, as multiples of their median, seed the random numbers. The same samples give the same interval, in
any order and in any unit.
"""

import hashlib
import math
import random
import struct
from collections.abc import Sequence
from typing import NamedTuple

from evaluator.timing.stats import median

DRAWS = 4000
_TAIL = 0.025


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
    """Largest error of each side's times, beyond the scatter of the samples, in ms."""

    reference_ms: float
    submission_ms: float

    @property
    def largest_ms(self) -> float:
        """The larger of both errors."""
        return max(self)

    def finer(self, factor: int) -> "Resolution":
        """Return the resolution divided by `factor`."""
        return Resolution(self.reference_ms / factor, self.submission_ms / factor)


class _Draw(NamedTuple):
    """Two resampled medians, and the clock's error of each as a multiple of its resolution."""

    reference_ms: float
    submission_ms: float
    reference_error: float
    submission_error: float


class Bootstrap:
    """Draws for one reference, measured in several runs, and one submission. All times are in ms; no list is empty."""

    def __init__(self, reference_runs_ms: Sequence[Sequence[float]], submission_ms: Sequence[float]) -> None:
        """Make the draws. All resolutions share the same draws."""
        runs = sorted(sorted(run) for run in reference_runs_ms)
        pools = {
            (one, other): sorted([*runs[one], *runs[other]]) for one in range(len(runs)) for other in range(len(runs))
        }
        submission = sorted(submission_ms)
        generator = random.Random(_seed([*runs, submission]))  # noqa: S311 - statistics, not secrets
        runs_drawn = range(len(runs))
        self._draws = []
        for _ in range(DRAWS):
            pool = pools[generator.choice(runs_drawn), generator.choice(runs_drawn)]
            self._draws.append(
                _Draw(
                    _resampled_median(pool, generator),
                    _resampled_median(submission, generator),
                    generator.uniform(-1, 1),
                    generator.uniform(-1, 1),
                )
            )

    def reference_ms(self, resolution_ms: float) -> Interval:
        """Return the interval of the reference's median time."""
        return _interval([max(draw.reference_ms + draw.reference_error * resolution_ms, 0.0) for draw in self._draws])

    def submission_ms(self, resolution_ms: float) -> Interval:
        """Return the interval of the submission's median time."""
        return _interval([max(draw.submission_ms + draw.submission_error * resolution_ms, 0.0) for draw in self._draws])

    def speedup(self, resolution: Resolution) -> Interval:
        """Return the interval of the ratio reference over submission; infinite if the submission may take no time."""
        return _interval(
            [
                _ratio(
                    draw.reference_ms + draw.reference_error * resolution.reference_ms,
                    draw.submission_ms + draw.submission_error * resolution.submission_ms,
                )
                for draw in self._draws
            ]
        )


def _resampled_median(ordered: Sequence[float], generator: random.Random) -> float:
    """Return the median of a resample of `ordered` with replacement."""
    count = len(ordered)
    rank = (count + 1) // 2
    place = generator.betavariate(rank, count + 1 - rank)
    lower = ordered[min(int(place * count), count - 1)]
    if count % 2:
        return lower
    # The next uniform number is the minimum of the rest above the current.
    place += (1 - place) * generator.betavariate(1, count - rank)
    return (lower + ordered[min(int(place * count), count - 1)]) / 2


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
