"""Limits of a call: usual until an answer deviates, then widened by the call's own rounding, or void."""

import math

import pytest
import torch
from msgspec import structs

from evaluator.judge.answer.call_limits import CallLimits
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.setup.distribution_mix import AS_GIVEN_ALONE
from evaluator.records import Profile, TensorCheck, ToleranceOverride, ToleranceRule
from tests.unit.references import reference

GIVEN = "torch.randn(256, 512)"
USUAL = 5e-5
MEAN_OF_NORM = {
    "output": "self.norm(x).mean(1)",
    "given": "torch.rand(64, 32)",
    "init": "self.norm = nn.GroupNorm(4, 32)",
}
"""0 but for rounding, with the constructed weights of 1 and biases of 0."""
NEAR = TensorCheck(
    path="output",
    dtype="float32",
    shape=[64],
    ok=False,
    max_abs_error=1.0,
    error_ratio=10.0,
    honest_error_ratio=0.1,
    mismatches=64,
    nonfinite=0,
    first_mismatch=None,
)
FAR = structs.replace(NEAR, error_ratio=1e4)
FEW_FAR = structs.replace(FAR, mismatches=4)
OWN, OTHER = Profile.AS_GIVEN, Profile.LARGE


def limits_of_call(profile, *, seed=None, rule=ToleranceRule.MEASURED, **expression):
    """Return the limits of a call with weights of `seed`, its plan, and its honest outputs."""
    made = reference(**expression)
    made.set_weights(seed)
    plan = CallPlan(made, 7, random_seed=0)
    return CallLimits(made, AS_GIVEN_ALONE, rule, profile, {}), plan, made.forward(plan.inputs, 0)


def shifted(by):
    """Return a sum that loses the digits of `by`: in fp32, it is rounded at the size of `by`."""
    return {"output": f"(x + {by}) - {by}", "given": GIVEN}


@pytest.mark.parametrize("profile", [OWN, OTHER])
def test_no_rounding_widens_a_limit_before_an_answer_deviates(profile):
    found, _, honest = limits_of_call(profile, **shifted(1e5))
    assert found.of("output", honest).floor == USUAL
    assert (found.void, found.stepped) == (set(), set())


@pytest.mark.parametrize("profile", [OWN, OTHER])
def test_the_rounding_of_a_deviating_call_widens_its_limit(profile):
    """A unit in the last place of 1000 is 6.1e-5, and a part of 2**-23 of it 1.2e-4; the rows' size is 1."""
    found, plan, honest = limits_of_call(profile, **shifted(1e3))
    assert found.measure(plan, [NEAR])
    assert 4 * 6.1e-5 < found.of("output", honest).floor < 4 * 2 * 1.2e-4
    assert (found.void, found.stepped) == (set(), set())


def test_a_rounding_that_decides_widens_the_limit_of_own_values_to_32_floors():
    """A unit in the last place of 1e5 is 1/128: four of them hide errors of 3 %."""
    found, plan, honest = limits_of_call(OTHER, **shifted(1e5))
    assert found.measure(plan, [FAR])
    assert 4 / 128 < found.of("output", honest).floor < 4 / 16
    found, plan, honest = limits_of_call(OWN, **shifted(1e5))
    assert found.measure(plan, [NEAR])
    assert found.of("output", honest).floor == pytest.approx(32 * USUAL)
    assert (found.void, found.stepped) == (set(), {"output"})


def test_an_output_that_rounding_replaces_is_void_with_other_values():
    """A unit in the last place of 1e6 is 1/16 of the values."""
    found, plan, honest = limits_of_call(OTHER, **shifted(1e6))
    assert found.measure(plan, [FAR])
    assert (found.void, found.stepped) == ({"output"}, set())
    assert found.of("output", honest).floor == USUAL


def test_whole_numbers_that_rounding_changes_are_void_or_at_a_step():
    whole = {"output": "(x * 100).floor().int()", "given": GIVEN}
    for profile, void, stepped in ((OTHER, {"output"}, set()), (OWN, set(), {"output"})):
        found, plan, honest = limits_of_call(profile, **whole)
        assert found.measure(plan, [FAR if profile is OTHER else FEW_FAR]) is (profile is OTHER)
        assert (found.void, found.stepped) == (void, stepped)
        assert found.of("output", honest) is None


def test_many_far_errors_of_the_problems_own_values_are_no_rounding():
    found, plan, _ = limits_of_call(OWN, **shifted(1e5))
    assert not found.measure(plan, [FAR])
    assert found.stepped == set()
    assert found.measure(plan, [FEW_FAR])
    assert found.stepped == {"output"}


@pytest.mark.parametrize("profile", [OWN, OTHER])
def test_few_whole_numbers_are_at_a_step_where_the_reference_rounds(profile):
    for output, is_at_step in (("(x.sum(1) > 0).int()", True), ("(x[:, 0] > 0).int()", False), ("x.sum(1)", False)):
        found, plan, _ = limits_of_call(profile, output=output, given=GIVEN)
        assert (found.few_at_steps(plan, [FEW_FAR]) is not None) is is_at_step
        assert found.few_at_steps(plan, [structs.replace(FEW_FAR, ok=True)]) is None
        assert found.few_at_steps(plan, [structs.replace(FEW_FAR, mismatches=5)]) is None


def test_exact_arithmetic_widens_nothing():
    for profile in (OWN, OTHER):
        found, plan, honest = limits_of_call(profile, output="x * 2", given=GIVEN)
        found.measure(plan, [NEAR])
        assert found.of("output", honest).floor == USUAL
        assert (found.void, found.stepped) == (set(), set())


def test_the_weights_of_a_call_say_whether_rounding_decides():
    """Other weights and biases than 1 and 0 give the mean of a norm a size."""
    constructed, plan, _ = limits_of_call(OWN, **MEAN_OF_NORM)
    constructed.measure(plan, [NEAR])
    assert constructed.stepped == {"output"}
    other, plan, honest = limits_of_call(OWN, seed=7, **MEAN_OF_NORM)
    other.measure(plan, [NEAR])
    assert other.stepped == set()
    assert other.of("output", honest).floor < 2 * USUAL


def test_a_result_of_rounding_is_void_with_the_problems_own_values_too():
    """Any answer would be as good, and float64 disagrees with the plain reference."""
    found, plan, honest = limits_of_call(OWN, **MEAN_OF_NORM)
    assert not found.measure(plan, [FAR])
    assert found.measure(plan, [FAR], in_float64=False)
    assert (found.void, found.stepped) == ({"output"}, set())
    assert found.of("output", honest).floor == USUAL
    other, plan, _ = limits_of_call(OWN, seed=7, **MEAN_OF_NORM)
    assert not other.measure(plan, [FAR], in_float64=False)
    assert other.void == set()


def test_random_numbers_that_float64_draws_otherwise_are_no_rounding():
    found, plan, _ = limits_of_call(OWN, output="F.dropout(x, 0.5)", given=GIVEN)
    assert not found.measure(plan, [FAR], in_float64=False)
    assert (found.void, found.stepped) == (set(), set())


def test_each_output_has_its_own_rounding():
    both = MEAN_OF_NORM | {"output": "(self.norm(x).mean(1), self.norm(x).sum(0))"}
    found, plan, honest = limits_of_call(OTHER, **both)
    assert found.measure(plan, [structs.replace(FAR, path="output[1]")])
    assert found.void == {"output[0]"}
    assert found.of("output[1]", honest[1]).floor < 2 * USUAL


def test_kernelbenchs_rule_measures_nothing():
    found, plan, honest = limits_of_call(OTHER, rule=ToleranceRule.KERNELBENCH, **shifted(1e3))
    assert not found.measure(plan, [NEAR])
    assert found.of("output", honest).floor == 1e-4


def test_rounding_does_not_lower_the_authors_floor():
    wide = {"tolerance": ToleranceOverride(floor=0.5)}
    found, plan, honest = limits_of_call(OTHER, **shifted(1e3), **wide)
    found.measure(plan, [NEAR])
    assert found.of("output", honest).floor == 0.5


def test_fill_values_are_those_of_the_first_call():
    """A call without masked elements takes the size of the fill values of an earlier call."""
    made = reference("torch.where(x > 0, x, -1e9)", GIVEN)
    plan = CallPlan(made, 7, random_seed=0)
    fills: dict[str, float] = {}
    first = CallLimits(made, AS_GIVEN_ALONE, ToleranceRule.MEASURED, OWN, fills)
    assert first.of("output", made.forward(plan.inputs, 0)).fill == 5e8
    later = CallLimits(made, AS_GIVEN_ALONE, ToleranceRule.MEASURED, OTHER, fills)
    assert later.of("output", torch.rand(256, 512)).fill == 5e8
    unmasked = CallLimits(made, AS_GIVEN_ALONE, ToleranceRule.MEASURED, OWN, {})
    assert unmasked.of("output", torch.rand(256, 512)).fill == math.inf
