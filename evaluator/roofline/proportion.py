"""Lower confidence bound of a sampled proportion. Pure."""

import math

from evaluator.records import Flips

_DOUBT = 1e-3
"""Probability that `least_part` is too high. The bound decides a verdict."""
_STEPS = 60


def least_part(flips: Flips) -> float:
    """Return the least fraction that matters, with 99.9 % confidence: the exact bound of a binomial proportion.

    At the bound, as many or more samples would matter in one case in a thousand. Source: Clopper and Pearson, The Use
    of Confidence or Fiducial Limits, Biometrika 26, 1934.

    >>> round(least_part(Flips(samples=128, mattered=128)), 3), least_part(Flips(samples=128, mattered=0))
    (0.947, 0.0)
    """
    if not flips.mattered:
        return 0.0
    low, high = 0.0, flips.mattered / flips.samples
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _at_least(flips.mattered, flips.samples, middle) < _DOUBT:
            low = middle
        else:
            high = middle
    return low


def _at_least(mattered: int, samples: int, part: float) -> float:
    """Return the probability of `mattered` or more among `samples`, each with probability `part`."""
    return math.fsum(
        math.comb(samples, count) * part**count * (1 - part) ** (samples - count)
        for count in range(mattered, samples + 1)
    )
