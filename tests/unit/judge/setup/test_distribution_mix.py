"""Which distributions the calls of a problem have, and how often."""

import collections

import pytest

from evaluator.judge.reference.dependence import settle_weights
from evaluator.judge.reference.input_distributions import PROFILES
from evaluator.judge.setup import distribution_trials
from evaluator.judge.setup.distribution_mix import AS_GIVEN_ALONE, DistributionMix, distribution_mix_for
from evaluator.judge.setup.seed_book import fresh_seed
from evaluator.records import Profile, SizeName, ToleranceRule, ValuesRule, WeightsRule
from tests.unit.references import reference

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


def mix(output="torch.relu(x)", rule=ToleranceRule.MEASURED, values=ValuesRule.ALL):
    return distribution_mix_for(reference(output, "torch.rand(32, 64)"), SizeName.SMALL, rule, values)


def test_distributions_that_the_reference_does_not_support_are_left_out():
    found = mix("torch.log(x)")
    assert not {Profile.SIGNED_NORMAL, Profile.NEAR_ONE} & set(found.use)
    assert set(found.use) | set(found.left_out) == set(PROFILES)
    assert found.untried == []
    assert mix().use == WITHOUT_FACTORS


def test_without_a_trial_the_problems_own_values_are_alone(monkeypatch):
    monkeypatch.setattr(distribution_trials, "_LONGEST_S", 1e-9)
    slow = mix()
    assert (slow.use, slow.untried) == ((), list(PROFILES))


@pytest.mark.parametrize(("weights", "of_problem"), [(WeightsRule.FROZEN, None), (None, WeightsRule.FROZEN)])
def test_constant_weights_have_no_evidence_from_other_weights(weights, of_problem):
    """With weights of 1 and biases of 0, the mean of a group norm is 0."""
    changes = {} if of_problem is None else {"weights": of_problem}
    made = reference("self.norm(x).mean(1)", "torch.rand(64, 32)", "self.norm = nn.GroupNorm(4, 32)", **changes)
    settle_weights(made, made.draw(11))
    rule = weights or WeightsRule.CHANGING
    found = distribution_mix_for(made, SizeName.SMALL, ToleranceRule.MEASURED, weights=rule)
    assert found.distance(Profile.AS_GIVEN, "output") == 0.0


def test_kernelbenchs_rule_goes_with_its_inputs():
    assert mix(rule=ToleranceRule.KERNELBENCH) == AS_GIVEN_ALONE


def test_the_problems_own_values_alone_have_distances_of_wrong_answers():
    own = mix("torch.softmax(x, 1)", values=ValuesRule.OWN)
    assert (own.use, own.row_sites) == ((), ())
    assert own.distance(Profile.AS_GIVEN, "output") > 0.01
    assert AS_GIVEN_ALONE.distance(Profile.AS_GIVEN, "output") is None
