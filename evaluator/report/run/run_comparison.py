"""Comparison of two runs by submission, and the decision whether the second is worse. Pure.

The relative speed of the second run is the geometric mean of the ratios of speedups, over submissions correct in both
runs. Its interval is the wider of two: the scatter of the ratios (Student's, on logarithms), and the interval of
each speedup. One pair is therefore enough for a decision.
"""

import math
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from evaluator.errors import UsageError
from evaluator.report.run.intervals import NORMAL_95, Estimate, scatter_95
from evaluator.report.run.summary import CaseSample, RunSample

_RULE = re.compile(r"(?P<metric>speedup|correct):-(?P<percent>[0-9]+(?:\.[0-9]+)?)%")
_SIGNIFICANT = 0.05
S = TypeVar("S", RunSample, CaseSample)


class VerdictChange(StrEnum):
    """Change of a submission from the first run to the second.

    `faster` and `slower`: the interval of the ratio of speedups excludes 1. `other`: two different failures.
    """

    BROKEN = "broken"
    FIXED = "fixed"
    SLOWER = "slower"
    FASTER = "faster"
    OTHER = "other"
    SAME = "same"


class Pair(NamedTuple, Generic[S]):
    """One submission, or one of its cases, in both runs."""

    before: S
    after: S

    @property
    def ratio(self) -> float | None:
        """Speedup in the second run divided by that in the first; None if either is unknown."""
        if not (self.before.correct and self.after.correct and self.before.speedup and self.after.speedup):
            return None
        return self.after.speedup / self.before.speedup

    @property
    def faster(self) -> Estimate | None:
        """The ratio with the interval from those of both speedups; None without a ratio."""
        return _faster([self]) if self.ratio is not None else None

    @property
    def change(self) -> VerdictChange:
        """The change of the verdict, or of the speed if both verdicts are correct."""
        if self.before.correct != self.after.correct:
            return VerdictChange.BROKEN if self.before.correct else VerdictChange.FIXED
        if not self.before.correct:
            return VerdictChange.SAME if self.before.status is self.after.status else VerdictChange.OTHER
        faster = self.faster
        if faster is None or faster.low is None or faster.high is None or faster.low <= 1 <= faster.high:
            return VerdictChange.SAME
        return VerdictChange.FASTER if faster.value > 1 else VerdictChange.SLOWER


def case_pairs(pair: Pair[RunSample]) -> list[Pair[CaseSample]]:
    """Return the cases of a submission that both runs graded."""
    after = pair.after.graded_cases
    return [Pair(case, after[name]) for name, case in pair.before.graded_cases.items() if name in after]


def measured_differently(pair: Pair[RunSample]) -> bool:
    """Whether the speedups differ in kinds of calls, in the state of the inputs in L2, or in the cases."""
    before, after = ((side.measured, side.graded_cases.keys()) for side in pair)
    return pair.ratio is not None and before != after


class Comparison(NamedTuple):
    """Two runs. `faster` is the geometric mean of the ratios over `timed` pairs; None without any.

    `measured_differently` counts the timed pairs with speedups of different kinds of calls, states of L2, or cases.

    `p_broken` is the probability of at least so many more regressions than fixes by chance (the sign test: exact,
    one-sided McNemar).
    """

    pairs: list[Pair[RunSample]]
    only_before: list[RunSample]
    only_after: list[RunSample]
    broken: list[Pair[RunSample]]
    mended: list[Pair[RunSample]]
    timed: int
    faster: Estimate | None
    p_broken: float
    measured_differently: int = 0


class Rule(NamedTuple):
    """A rule of failure: `metric` falls by more than `percent`; None means any broken submission."""

    metric: str
    percent: float | None


def parse_rule(text: str) -> Rule:
    """Parse a value of `--fail-on`.

    >>> parse_rule("speedup:-5%"), parse_rule("status")
    (Rule(metric='speedup', percent=5.0), Rule(metric='status', percent=None))

    Raises:
        UsageError: the rule is unknown.
    """
    if text == "status":
        return Rule("status", None)
    match = _RULE.fullmatch(text)
    if match is None or float(match["percent"]) >= 100:
        hint = "use speedup:-5%, correct:-2%, or status (any submission correct in RUN_A and not in RUN_B)"
        raise UsageError(f"{text!r} is not a rule for --fail-on", hint=hint)
    return Rule(match["metric"], float(match["percent"]))


def compare(before: Iterable[RunSample], after: Iterable[RunSample]) -> Comparison:
    """Pair the submissions of two runs by problem and name. Unpaired submissions are listed, not compared."""
    by_key_before = {(submission.problem, submission.name): submission for submission in before}
    by_key_after = {(submission.problem, submission.name): submission for submission in after}
    pairs = [Pair(by_key_before[key], by_key_after[key]) for key in sorted(by_key_before.keys() & by_key_after.keys())]
    broken = [pair for pair in pairs if pair.before.correct and not pair.after.correct]
    mended = [pair for pair in pairs if pair.after.correct and not pair.before.correct]
    timed = [pair for pair in pairs if pair.ratio is not None]
    return Comparison(
        pairs=pairs,
        only_before=[by_key_before[key] for key in sorted(by_key_before.keys() - by_key_after.keys())],
        only_after=[by_key_after[key] for key in sorted(by_key_after.keys() - by_key_before.keys())],
        broken=broken,
        mended=mended,
        timed=len(timed),
        faster=_faster(timed),
        p_broken=_sign_test(len(broken), len(broken) + len(mended)),
        measured_differently=sum(map(measured_differently, timed)),
    )


def failures(comparison: Comparison, rules: Sequence[Rule]) -> list[str]:
    """Return the failed rules with reasons. A fall counts only if significant: its interval excludes no change."""
    return [reason for rule in rules for reason in _failure(comparison, rule)]


def _failure(comparison: Comparison, rule: Rule) -> list[str]:
    broken, mended = len(comparison.broken), len(comparison.mended)
    if rule.percent is None:
        return [f"correct in RUN_A and not in RUN_B: {broken}"] if broken else []
    if rule.metric == "correct":
        if not comparison.pairs:
            return ["the runs share no submission, so the correct share cannot be compared"]
        fall = (broken - mended) / len(comparison.pairs) * 100
        if fall > rule.percent and comparison.p_broken < _SIGNIFICANT:
            return [f"the correct share fell by {fall:.1f} points (p = {comparison.p_broken:.2g})"]
        return []
    faster = comparison.faster
    if faster is None:
        # A gate without measurements fails.
        return ["no submission has a speedup in both runs, so speed cannot be compared"]
    fall = (1 - faster.value) * 100
    if fall > rule.percent and faster.high is not None and faster.high < 1:
        return [f"the speedup fell by {fall:.1f} % over {comparison.timed} submissions"]
    return []


def _faster(timed: Sequence[Pair[S]]) -> Estimate | None:
    logs = [math.log(pair.ratio) for pair in timed if pair.ratio is not None]
    if not logs:
        return None
    mean = math.fsum(logs) / len(logs)
    halves = [half for half in (scatter_95(logs) if len(logs) > 1 else None, _uncertainty(timed)) if half is not None]
    if not halves:
        return Estimate(math.exp(mean), None, None)
    return Estimate(math.exp(mean), math.exp(mean - max(halves)), math.exp(mean + max(halves)))


def _uncertainty(timed: Sequence[Pair[S]]) -> float | None:
    """Return half the width of the clock's interval; None if a speedup has no interval."""
    variances = []
    for side in (side for pair in timed for side in pair):
        if not side.speedup_low or not side.speedup_high:
            return None
        variances.append((math.log(side.speedup_high / side.speedup_low) / 2 / NORMAL_95) ** 2)
    return NORMAL_95 * math.sqrt(math.fsum(variances)) / len(timed)


def _sign_test(count: int, tosses: int) -> float:
    """Return the probability of at least `count` heads."""
    at_least = sum(math.comb(tosses, heads) for heads in range(count, tosses + 1))
    return float(at_least / 2**tosses)
