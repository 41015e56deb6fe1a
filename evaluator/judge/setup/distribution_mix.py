"""Mix of input distributions: the distributions (profiles) of a problem's calls, and their frequencies.

Every distribution is used, unless the author leaves the distribution out. Unusable distributions are left out of a
problem's further calls (`distribution_trials`).
"""

import hashlib
import itertools
import secrets
from collections.abc import Iterator
from typing import NamedTuple

from evaluator.judge.compare.tensor_comparison import Comparison, begin
from evaluator.judge.inputs.input_distributions import PROFILES
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup.distribution_trials import DistributionTrials
from evaluator.judge.setup.problem_traits import NO_TRAITS, traits_of
from evaluator.records import Precision, Problem, Profile, RowSite, SizeName, ToleranceRule, ValuesRule

_ONE_IN = 5
"""A fifth of the timed calls use a distribution other than the problem's own."""
_CHECKS = 5
_AS_GIVEN_CHECKS = 2


class DistributionMix(NamedTuple):
    """Distributions in use beside the problem's own.

    `row_sites` are where rows cancel in calls with the problem's own values. `elementwise` are the paths of outputs
    without sums. `trials` answer questions about a distribution; None if no call needs evidence.
    """

    use: tuple[Profile, ...] = ()
    row_sites: tuple[RowSite, ...] = ()
    elementwise: frozenset[str] = frozenset()
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

    def distance(self, profile: Profile, path: str) -> float | None:
        """Return the distance of wrong answers of an output with a distribution; None if unknown."""
        return None if self.trials is None else self.trials.distance(profile, path)

    def without(self, profile: Profile) -> "DistributionMix":
        """Return the mix without a distribution."""
        return self._replace(use=tuple(each for each in self.use if each is not profile))


AS_GIVEN_ALONE = DistributionMix()
"""Only the problem's own values: KernelBench's rule goes with KernelBench's inputs."""


def distribution_mix_for(
    reference: Reference,
    size: SizeName,
    rule: ToleranceRule,
    values: ValuesRule = ValuesRule.ALL,
    compare: Comparison = begin,
) -> DistributionMix:
    """Return the mix for a reference. `compare` compares tensors on the reference's device."""
    if rule is ToleranceRule.KERNELBENCH:
        return AS_GIVEN_ALONE
    problem = reference.problem
    try:
        traits = traits_of(problem, size, reference.device.type)
    except MemoryError:  # For this grade alone.
        traits = NO_TRAITS
    is_own = values is ValuesRule.OWN
    # TF32 cut off, as tensor cores do, is off by a third of bf16: size does not separate the two.
    has_sites = not is_own and problem.precision is not Precision.TF32
    return DistributionMix(
        () if is_own else usable_profiles(problem, multiplies=traits.multiplies),
        tuple(traits.sites) if has_sites else (),
        frozenset(traits.elementwise) if problem.precision is Precision.FP32 else frozenset(),
        DistributionTrials(reference, size, compare),
    )


def usable_profiles(problem: Problem, *, multiplies: bool) -> tuple[Profile, ...]:
    """Return the distributions not left out by the author.

    Factors near 1 are for products of many factors, or on the author's request: long sums of equal terms have a bias in
    any single accumulator.
    """
    declared = problem.profiles
    return tuple(
        profile
        for profile in PROFILES
        if not isinstance(declared.get(profile), str)
        and (profile is not Profile.NEAR_ONE or multiplies or declared.get(profile) is True)
    )


def _number(seed: int) -> int:
    return int.from_bytes(hashlib.blake2b(seed.to_bytes(8, "big"), digest_size=8, person=b"profile").digest(), "big")
