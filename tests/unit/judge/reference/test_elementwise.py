"""Elementwise maps: which references are, and the smaller tolerance of their outputs."""

import pytest
import torch
from msgspec import structs

from evaluator.judge.compare.tensor_comparison import Sides, compare
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.setup.call_limits import CallLimits
from evaluator.judge.setup.distribution_mix import AS_GIVEN_ALONE
from evaluator.records import Precision, Profile, ToleranceOverride, ToleranceRule
from tests.unit.references import reference


def settled(**expression):
    made = reference(**expression)
    inputs = made.draw(1)
    made.settle(inputs, made.forward(inputs, 0))
    return made


@pytest.mark.parametrize(
    "output",
    [
        "x",
        "torch.exp(x)",
        "nn.functional.gelu(x)",
        "nn.functional.hardswish(x)",
        "nn.functional.logsigmoid(x)",
        "nn.functional.prelu(x, torch.full((1,), 0.25))",
        "nn.functional.glu(x.view(2, -1))",
        "x.abs_().sqrt() / (1 + x)",
        "torch.where(x > 0, x, torch.zeros_like(x)).mT.contiguous()",
        "torch.cat([x, 2 * x]).double()",
        "torch.stack(x.chunk(2)) + torch.arange(2).view(2, *[1] * x.dim())",
    ],
)
def test_what_adds_nothing_up_is_elementwise(output):
    assert settled(output=output, given="torch.rand(8, 6)").is_elementwise


@pytest.mark.parametrize(
    "output",
    ["x.sum()", "x @ x.mT", "torch.softmax(x, 1)", "x.cumsum(0)", "x / x.norm()", "nn.functional.layer_norm(x, (6,))",
     "x.amax(1)", "x[torch.tensor([1, 1])]", "nn.functional.dropout(x)"],
)  # fmt: skip
def test_other_references_are_not(output):
    assert not settled(output=output, given="torch.rand(8, 6)").is_elementwise


def error_over_allowed(made, error, rule=ToleranceRule.MEASURED, profile=Profile.AS_GIVEN):
    """Return the error of an answer that is `error` of its value off, over the allowed error."""
    plan = CallPlan(made, 7, random_seed=0)
    limits = CallLimits(made, AS_GIVEN_ALONE, rule, profile, (), changing=False)
    honest = made.forward(plan.inputs, 0)
    answer = Sides((honest * (1 + error)).to(honest.dtype), honest.double(), honest)
    return compare("output", answer, limits.of("output", honest)).error_ratio


EXP = {"output": "torch.exp(x)", "given": "torch.rand(64, 256)"}
SUMS = {"output": "torch.exp(x) + x.mean()", "given": "torch.rand(64, 256)"}


def test_an_elementwise_map_may_be_off_by_what_pytorch_permits_in_fp32():
    allowed = torch.finfo(torch.float32).eps * 16 + 1e-5
    assert error_over_allowed(settled(**EXP), allowed / 2) < 1
    assert error_over_allowed(settled(**EXP), 2 * allowed) > 1
    assert error_over_allowed(settled(**SUMS), 2 * allowed) < 0.75
    assert error_over_allowed(settled(**EXP), 2 * allowed, profile=Profile.SMALL) < 0.75


def test_other_rules_and_other_precisions_keep_their_floors():
    """Each has a floor far above that of fp32, which an error of 2e-5 stays below."""
    tf32, own = settled(**EXP), settled(**EXP)
    tf32.problem = structs.replace(tf32.problem, precision=Precision.TF32)
    own.problem = structs.replace(own.problem, tolerance=ToleranceOverride(floor=1e-3))
    half = settled(output="torch.exp(x).bfloat16()", given="torch.rand(64, 256)")
    for made, error in ((tf32, 1e-3), (own, 5e-4), (half, 2.0**-7)):
        assert made.is_elementwise
        assert error_over_allowed(made, error) < 1
    assert error_over_allowed(settled(**EXP), 5e-5, ToleranceRule.KERNELBENCH) < 1


def test_a_problem_with_a_backward_pass_adds_up_gradients():
    made = reference(**EXP)
    made.problem = structs.replace(made.problem, backward=True)
    inputs = made.draw(1)
    made.settle(inputs, made.forward(inputs, 0))
    assert not made.is_elementwise
