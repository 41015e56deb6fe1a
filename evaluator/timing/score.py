"""The score of several cases: the weighted geometric mean of their speedups, with an interval. Pure."""

import math
from collections.abc import Sequence

from evaluator.records import CaseResult, Score, finite_or_none
from evaluator.timing.quote import WIDEST


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
