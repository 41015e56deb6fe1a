"""Mix of input distributions: the distributions (profiles) of a problem's calls, and their frequencies.

Every distribution is used that the reference supports, unless the author leaves the distribution out.
"""

import hashlib
import itertools
import secrets
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from evaluator.judge.compare.tensor_comparison import Comparison, begin
from evaluator.judge.reference.input_distributions import PROFILES
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup.distribution_trials import TOO_SLOW, DistributionTrials
from evaluator.judge.setup.problem_traits import traits_of
from evaluator.records import CaseName, Precision, Profile, RowSite, ToleranceRule, ValuesRule, WeightsRule

_ONE_IN = 5
"""A fifth of the timed calls use a distribution other than the problem's own."""
_CHECKS = 5
_AS_GIVEN_CHECKS = 2
_NO_MEMORY = "memory is too short to try it"


class DistributionMix(NamedTuple):
    """Distributions in use beside the problem's own.

    `row_sites` are where rows cancel in calls with the problem's own values. `elementwise` are the paths of outputs
    without sums. `left_out` has the reasons against unused distributions. `trials` measure distances of wrong answers;
    None if no call needs evidence.
    """

    use: tuple[Profile, ...] = ()
    row_sites: tuple[RowSite, ...] = ()
    elementwise: frozenset[str] = frozenset()
    left_out: Mapping[Profile, str] = {}
    trials: DistributionTrials | None = None

    def pick(self, seed: int) -> Profile:
        """Return the distribution of a timed call, determined by the call's seed: no runner knows the seed."""
        number = _number(seed)
        return self.use[number // _ONE_IN % len(self.use)] if self.use and number % _ONE_IN == 0 else Profile.AS_GIVEN

    def seed_for(self, profile: Profile) -> int:
        """Return a random seed with the given `profile`, from the operating system. About 1 of 40 seeds fits."""
        while True:
            seed = secrets.randbits(63)
            if self.pick(seed) is profile:
                return seed

    def decoy(self, seed: int) -> Profile:
        """Return a distribution to draw and discard: drawing then takes equally long for all calls."""
        return self.use[_number(seed) // _ONE_IN % len(self.use)] if self.use else Profile.AS_GIVEN

    def checks(self) -> list[Profile]:
        """Return the distributions of checked calls: as given first, for easy diagnosis, then all; outliers thrice."""
        as_given = [Profile.AS_GIVEN] * (max(_AS_GIVEN_CHECKS, _CHECKS - len(self.use)) - 1)
        rest = [*self.use, *[Profile.OUTLIERS] * (2 * self.use.count(Profile.OUTLIERS)), *as_given]
        secrets.SystemRandom().shuffle(rest)
        return [Profile.AS_GIVEN, *rest]

    def proofs(self) -> Iterator[Profile]:
        """Yield the distributions that are evidence again and again; none without any."""
        if self.trials is not None:
            yield from itertools.cycle(filter(self.trials.is_evidence, (Profile.AS_GIVEN, *self.use)))

    @property
    def untried(self) -> list[Profile]:
        """Distributions left out for lack of a trial: the problem is too slow, or memory was short."""
        return [profile for profile, reason in self.left_out.items() if reason in (TOO_SLOW, _NO_MEMORY)]

    def distance(self, profile: Profile, path: str) -> float | None:
        """Return the distance of wrong answers of an output with a distribution; None if unknown."""
        return None if self.trials is None else self.trials.distance(profile, path)


AS_GIVEN_ALONE = DistributionMix()
"""Only the problem's own values: KernelBench's rule goes with KernelBench's inputs."""


def distribution_mix_for(
    reference: Reference,
    size: CaseName,
    rule: ToleranceRule,
    values: ValuesRule = ValuesRule.ALL,
    compare: Comparison = begin,
    weights: WeightsRule = WeightsRule.CHANGING,
) -> DistributionMix:
    """Return the mix for a reference. `compare` compares tensors on the reference's device.

    Raises:
        ProblemError: the reference refuses its own inputs.
    """
    if rule is not ToleranceRule.MEASURED:
        return AS_GIVEN_ALONE
    problem = reference.problem
    may_change = WeightsRule.FROZEN not in (weights, problem.weights)
    trials = DistributionTrials(reference, size, compare, may_change=may_change)
    try:
        traits = traits_of(problem, size, reference.device.type)
    except MemoryError:  # For this grade alone.
        return DistributionMix(left_out=dict.fromkeys(PROFILES, _NO_MEMORY), trials=trials)
    is_own = values is ValuesRule.OWN
    # TF32 cut off, as tensor cores do, is off by a third of bf16: size does not separate the two.
    has_sites = not is_own and problem.precision is not Precision.TF32
    return DistributionMix(
        () if is_own else tuple(profile for profile in PROFILES if profile not in traits.left_out),
        tuple(traits.sites) if has_sites else (),
        # Logarithms and roots take no random signs, and their textbook forms round near 1 and 0.
        frozenset(traits.elementwise) if problem.precision is Precision.FP32 else frozenset(),
        {} if is_own else traits.left_out,
        trials,
    )


def _number(seed: int) -> int:
    return int.from_bytes(hashlib.blake2b(seed.to_bytes(8, "big"), digest_size=8, person=b"profile").digest(), "big")
