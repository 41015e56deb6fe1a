"""Elementwise maps: which outputs are, and the smaller tolerance of their errors."""

import pytest
import torch

from evaluator.judge.answer.call_limits import CallLimits
from evaluator.judge.compare.tensor_comparison import Sides, compare
from evaluator.judge.compare.tolerance import bounds, without_sums
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.setup import problem_traits
from evaluator.judge.setup.distribution_mix import AS_GIVEN_ALONE
from evaluator.judge.setup.problem_traits import find_elementwise
from evaluator.records import Precision, Profile, ToleranceOverride, ToleranceRule
from tests.unit.references import problem, reference

GIVEN = "torch.rand(16, 64)"
TWO = "torch.rand(16, 64), torch.rand(16, 64)"
TREE = "__import__('functools').reduce(lambda s, _: s.view(16, 2, -1).sum(1), range(6), x)"
BY_NUMPY = "torch.from_numpy(x.numpy().clip(0.25))"


@pytest.mark.parametrize(
    "output", ["torch.exp(x)", "nn.functional.gelu(x)", "x.T.contiguous() * 2", "1 / (1 + x)", "x.abs()", BY_NUMPY]
)
def test_an_output_element_that_depends_on_one_element_is_elementwise(output):
    assert find_elementwise(reference(output, GIVEN)) == {"output"}


@pytest.mark.parametrize("given", ["torch.rand(64)", "torch.rand(1, 64)", "torch.rand(64, 1)", "torch.rand(2, 3, 64)"])
def test_inputs_of_other_shapes_are_elementwise_too(given):
    assert find_elementwise(reference("torch.exp(x)", given)) == {"output"}


def test_outputs_are_elementwise_one_by_one():
    assert find_elementwise(reference("(x * 2, x.mean(1), x[:0])", GIVEN)) == {"output[0]"}


@pytest.mark.parametrize(
    "output",
    ["x.sum()", "x.sum(1)", "x.cumsum(0)", "torch.softmax(x, 1)", "x @ x.T", TREE, "x + x.flip(1)", "x / x.norm()",
     "nn.functional.glu(x)", "nn.functional.rms_norm(x, (64,))", "x - x[:1]", "x - x[-1:]", "x - x[8:9]",
     "torch.full((16, 64), 2.0)"],
)  # fmt: skip
def test_an_output_element_that_depends_on_several_or_none_is_not(output):
    assert find_elementwise(reference(output, GIVEN)) == set()


@pytest.mark.parametrize("rows", [2, 3, 63])
@pytest.mark.parametrize("output", ["torch.softmax(x, 0)", "x + x.flip(0)", "x * x.mean(0)", "x.cumsum(0)"])
def test_rows_of_a_short_dimension_and_of_a_flip_are_changed_one_by_one(output, rows):
    assert find_elementwise(reference(output, f"torch.rand({rows}, 64)")) == set()


@pytest.mark.parametrize(
    ("output", "paths"),
    [("nn.functional.softplus(x)", {"output"}), ("nn.functional.softplus(x - 4)", set()), ("x + 0 * x.log()", set())],
)
def test_outputs_with_small_rows_keep_the_usual_floor(output, paths):
    """The absolute error of fast logarithms is large beside small outputs. An output with NaN has no size."""
    assert find_elementwise(reference(output, "torch.rand(16, 64) - (torch.arange(16) == 3)[:, None] * 0.5")) == paths


@pytest.mark.parametrize("given", ["torch.ones(16, 64)", "torch.rand(16, 1).expand(16, 64)", "torch.rand(1)"])
def test_an_input_whose_elements_do_not_change_one_by_one_excludes_all_outputs(given):
    assert find_elementwise(reference("x * 2", given)) == set()


@pytest.mark.parametrize(
    ("output", "paths"),
    [("x * y", {"output"}), ("x * y.sum(1, keepdim=True)", set()), ("x * y[:1]", set()), ("x * 2", set())],
)
def test_every_input_counts(output, paths):
    assert find_elementwise(reference(output, TWO, forward="x, y")) == paths


@pytest.mark.parametrize("init", ["self.w = nn.Parameter(torch.rand(64))", "self.register_buffer('w', torch.rand(64))"])
def test_a_forward_may_add_up_weights(init):
    assert find_elementwise(reference("torch.exp(x)", GIVEN)) == {"output"}
    assert find_elementwise(reference("torch.exp(x)", GIVEN, init)) == set()


def test_a_problem_with_a_backward_pass_adds_up_gradients():
    made = reference("torch.exp(x)", GIVEN, backward=True)
    assert find_elementwise(made) == set()


def test_what_is_too_slow_is_not_tried(monkeypatch):
    monkeypatch.setattr(problem_traits, "LONGEST_S", 0.0)
    assert find_elementwise(reference("torch.exp(x)", GIVEN)) == set()


def test_without_float64_nothing_is_tried():
    made = reference("x * 2", GIVEN)
    made.leave_float64()
    assert find_elementwise(made) == set()


def test_inputs_whose_shapes_are_drawn_are_not_tried():
    assert find_elementwise(reference("x * 2", "torch.rand(16, 2 + int(torch.randint(1 << 16, ())))")) == set()


EXP = {"output": "torch.exp(x)", "given": "torch.rand(64, 256)"}
ELEMENTWISE = AS_GIVEN_ALONE._replace(elementwise=frozenset({"output"}))
ALLOWED = 1e-5 + torch.finfo(torch.float32).eps / 4
"""The floor, and half a unit in the last place of values between powers of two, at least."""


def limits_of(made, profile=Profile.AS_GIVEN, mix=ELEMENTWISE):
    return CallLimits(made, mix, ToleranceRule.MEASURED, profile, {})


def error_over_allowed(made, error, profile=Profile.AS_GIVEN, mix=ELEMENTWISE):
    """Return the error of an answer that is `error` of its value off, over the allowed error."""
    plan = CallPlan(made, 7, random_seed=0)
    honest = made.forward(plan.inputs, 0)
    answer = Sides((honest * (1 + error)).to(honest.dtype), honest.double(), honest)
    return compare("output", answer, limits_of(made, profile, mix).of("output", honest)).error_ratio


def test_an_elementwise_map_may_be_off_by_what_pytorch_permits_in_fp32():
    assert error_over_allowed(reference(**EXP), ALLOWED / 2) < 1
    assert error_over_allowed(reference(**EXP), 2 * ALLOWED) > 1


def test_other_outputs_and_other_values_keep_their_floor():
    assert error_over_allowed(reference(**EXP), 2 * ALLOWED, mix=AS_GIVEN_ALONE) < 0.75
    assert error_over_allowed(reference(**EXP), 2 * ALLOWED, profile=Profile.SMALL) < 0.75


def both_limits(made, output):
    """Return the limits of an output without sums and of another."""
    return [limits_of(made, mix=mix).of("output", output) for mix in (ELEMENTWISE, AS_GIVEN_ALONE)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_dtypes_keep_their_floors(dtype):
    smaller, usual = both_limits(reference(**EXP), torch.ones(2, dtype=dtype))
    assert smaller == usual


@pytest.mark.parametrize("own", [{"precision": Precision.TF32}, {"tolerance": ToleranceOverride(floor=1e-3)}], ids=str)
def test_other_precisions_and_floors_of_the_author_stay(own):
    smaller, usual = both_limits(reference(**EXP, **own), torch.ones(2))
    assert smaller == usual


def test_measured_rounding_raises_the_smaller_floor_too():
    made = problem("torch.exp(x)")
    for rounding, floors in ((5e-6, (4 * 5e-6, 5e-5)), (1e-4, (4e-4, 4e-4))):
        usual = bounds(ToleranceRule.MEASURED, made, torch.float32, rounding)
        smaller = without_sums(usual, made, torch.float32, rounding)
        assert (smaller.floor, usual.floor) == pytest.approx(floors)
        assert smaller.widest * smaller.floor == pytest.approx(usual.widest * usual.floor)
