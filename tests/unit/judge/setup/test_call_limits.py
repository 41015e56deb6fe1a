"""Limits of a call: which rounding, measured beforehand with the constructed weights, holds for the call's own."""

import pytest
import torch
from msgspec import structs

from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.setup.call_limits import CallLimits
from evaluator.judge.setup.distribution_mix import decide, distribution_mix_of
from evaluator.records import Profile, SizeName, TensorCheck, ToleranceOverride, ToleranceRule
from tests.unit.references import reference

MEAN_OF_NORM = {
    "output": "self.norm(x).mean(1)",
    "given": "torch.rand(64, 32)",
    "init": "self.norm = nn.GroupNorm(4, 32)",
}
"""0 but for rounding, with the constructed weights of 1 and biases of 0."""
FAR = TensorCheck(
    path="output",
    dtype="float32",
    shape=[64],
    ok=False,
    max_abs_error=1.0,
    error_ratio=1e4,
    honest_error_ratio=0.1,
    mismatches=64,
    nonfinite=0,
    first_mismatch=None,
)


def limits_of_call(seed, *, changing=True, **expression):
    made = reference(**expression)
    mix = distribution_mix_of(decide(made, SizeName.SMALL))
    made.wear(seed)
    plan = CallPlan(made, 7, random_seed=0)
    found = CallLimits(made, mix, ToleranceRule.MEASURED, Profile.AS_GIVEN, (), changing=changing)
    return found, plan, found.of("output", made.forward(plan.inputs, 0))


def test_a_rounding_that_decides_with_the_constructed_weights_does_not_hold_for_others():
    assert limits_of_call(None, changing=False, **MEAN_OF_NORM)[2].floor > 1
    assert limits_of_call(7, **MEAN_OF_NORM)[2].floor == 5e-5


def test_a_rounding_that_leaves_most_elements_alone_holds_for_all_weights():
    steps = {"output": "torch.floor(self.scale * x * 100) / 100", "init": "self.scale = nn.Parameter(torch.ones(512))"}
    kept = limits_of_call(None, changing=False, given="torch.randn(256, 512)", **steps)[2]
    assert limits_of_call(7, given="torch.randn(256, 512)", **steps)[2] == kept
    assert kept.rare > 1e-3


@pytest.mark.parametrize(("expression", "is_measured"), [(MEAN_OF_NORM, True), ({"output": "x + 1"}, False)])
def test_far_errors_are_no_rounding_unless_no_rounding_is_known_beforehand(expression, is_measured):
    found, plan, _ = limits_of_call(7, **expression)
    assert found.measure(plan, [FAR]) is is_measured
    assert (found.of_call != {}) is is_measured


def test_far_errors_are_measured_where_steps_are_known_beforehand():
    """A step is far from all rounding; how many elements may be a step off is a matter of the call."""
    steps = {"output": "torch.floor(x * 100) / 100", "given": "torch.randn(256, 512)"}
    found, plan, limit = limits_of_call(None, changing=False, **steps)
    assert limit.rare > 1e-3
    assert limit.flipped == 0
    assert found.measure(plan, [FAR])
    assert 0 < found.of("output", plan.reference.forward(plan.inputs, 0)).flipped < 1e-3


def test_rounding_of_the_constructed_weights_is_no_sign_of_stale_weights():
    """A call is repeated with earlier weights: a right answer proves a stale copy (C419)."""
    found, plan, limit = limits_of_call(None, **MEAN_OF_NORM)
    assert limit.floor == 5e-5
    assert not found.measure(plan, [FAR])


@pytest.mark.parametrize(
    ("expression", "changing", "proves_nothing"),
    [(MEAN_OF_NORM, False, True), (MEAN_OF_NORM, True, False), ({"output": "x + 1"}, False, False)],
)
def test_an_answer_within_the_rounding_of_constructed_weights_proves_nothing(expression, changing, proves_nothing):
    found = limits_of_call(7 if changing else None, changing=changing, **expression)[0]
    assert found.prove_nothing == ({"output"} if proves_nothing else set())


def test_a_wide_floor_of_the_author_proves_an_answer():
    made = reference(**MEAN_OF_NORM)
    made.problem = structs.replace(made.problem, tolerance=ToleranceOverride(floor=1e6))
    mix = distribution_mix_of(decide(reference(**MEAN_OF_NORM), SizeName.SMALL))
    found = CallLimits(made, mix, ToleranceRule.MEASURED, Profile.AS_GIVEN, (), changing=False)
    found.of("output", torch.zeros(64))
    assert not found.prove_nothing


def test_far_errors_of_another_output_stay_errors():
    """The norm's mean takes the call's rounding. The sum beside the mean keeps the stored one: far errors are wrong."""
    made = reference(**MEAN_OF_NORM | {"output": "(self.norm(x).mean(1), self.norm(x).sum(0))"})
    mix = distribution_mix_of(decide(made, SizeName.SMALL))
    made.wear(7)
    plan = CallPlan(made, 7, random_seed=0)
    found = CallLimits(made, mix, ToleranceRule.MEASURED, Profile.AS_GIVEN, (), changing=True)
    for number, tensor in enumerate(made.forward(plan.inputs, 0)):
        found.of(f"output[{number}]", tensor)
    assert found.measure(plan, [structs.replace(FAR, path="output[1]")])
    assert list(found.of_call) == ["output[0]"]
