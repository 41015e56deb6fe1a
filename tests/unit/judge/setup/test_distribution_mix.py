"""Which distributions the calls of a problem have, and how often."""

import collections

import pytest

from evaluator.judge.inputs.input_distributions import PROFILES
from evaluator.judge.setup.distribution_mix import (
    AS_GIVEN_ALONE,
    DistributionMix,
    distribution_mix_for,
    usable_profiles,
)
from evaluator.judge.setup.seed_book import fresh_seed
from evaluator.records import Profile, SizeName, ToleranceRule, ValuesRule
from tests.unit.references import problem, reference

ALL = DistributionMix(PROFILES)
WITHOUT_FACTORS = tuple(profile for profile in PROFILES if profile is not Profile.NEAR_ONE)
"""The distributions of a reference that multiplies no factors."""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))


def test_a_call_in_five_has_other_values_and_all_of_them_come():
    seen = collections.Counter(ALL.pick(fresh_seed()) for _ in range(4000))
    assert set(seen) == set(Profile)
    assert 3000 < seen[Profile.AS_GIVEN] < 3400
    assert all(ALL.pick(seed) is profile for profile in Profile for seed in [ALL.seed_for(profile)])


def test_a_call_as_given_draws_a_decoy():
    assert {ALL.decoy(fresh_seed()) for _ in range(400)} == set(PROFILES)
    assert AS_GIVEN_ALONE.decoy(fresh_seed()) is Profile.AS_GIVEN


@pytest.mark.parametrize("use", [(), PROFILES[:1], PROFILES], ids=len)
def test_the_checks_have_every_profile_and_begin_as_given(use):
    planned = DistributionMix(tuple(use)).checks()
    assert planned[0] is Profile.AS_GIVEN
    assert set(planned) == {Profile.AS_GIVEN, *use}
    assert len(planned) >= 5
    assert planned.count(Profile.AS_GIVEN) >= 2
    assert [planned.count(profile) for profile in use] == [1 + 2 * (profile is Profile.OUTLIERS) for profile in use]


def test_a_mix_without_a_distribution_draws_no_call_with_it():
    mix = ALL.without(Profile.LARGE)
    assert Profile.LARGE not in mix.checks()
    assert {mix.pick(fresh_seed()) for _ in range(400)} == set(Profile) - {Profile.LARGE}


def test_an_authors_declaration_decides_which_distributions_are_drawn():
    declared = {Profile.SMALL: "logarithms of lengths, which are large", Profile.LARGE: True}
    assert usable_profiles(problem("x", profiles=declared), multiplies=False) == tuple(
        profile for profile in WITHOUT_FACTORS if profile is not Profile.SMALL
    )
    assert usable_profiles(problem("x", profiles={Profile.NEAR_ONE: True}), multiplies=False) == PROFILES


def mix(output="torch.relu(x)", rule=ToleranceRule.MEASURED, values=ValuesRule.ALL):
    return distribution_mix_for(reference(output, "torch.rand(32, 64)"), SizeName.SMALL, rule, values)


def test_factors_near_one_are_for_products_of_many_factors():
    assert mix().use == WITHOUT_FACTORS
    assert mix("x.prod(1)").use == PROFILES


def test_kernelbenchs_rule_goes_with_its_inputs():
    assert mix(rule=ToleranceRule.KERNELBENCH) == AS_GIVEN_ALONE


def test_the_problems_own_values_alone_have_distances_of_wrong_answers():
    own = mix("torch.softmax(x, 1)", values=ValuesRule.OWN)
    assert (own.use, own.row_sites) == ((), ())
    assert own.distance(Profile.AS_GIVEN, "output") > 0.01
    assert AS_GIVEN_ALONE.distance(Profile.AS_GIVEN, "output") is None
