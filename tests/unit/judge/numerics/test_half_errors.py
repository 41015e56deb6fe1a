"""Errors of half-precision outputs within the tolerance: factors, cuts and fewer bits are found, roundings are not."""

import math

import pytest
import torch
from torch.nn import functional

from benchmarks.numerics.judged_answers import AnswerTrials, Setup
from evaluator.findings import Code
from evaluator.judge.compare.tensor_comparison import begin
from evaluator.judge.numerics.error_size import fault_in_half
from evaluator.judge.numerics.rounded_reference import Errors
from evaluator.judge.setup.distribution_mix import AS_GIVEN_ALONE
from evaluator.protocol.model_call import Result
from evaluator.records import Precision, ToleranceOverride, ToleranceRule
from tests.unit.references import reference

DTYPES = [torch.bfloat16, torch.float16]


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def fault(actual, exact, honest, dtype):
    sides = (side.to(dtype).double().flatten() for side in (actual, honest))
    actual, honest = sides
    places = torch.arange(actual.numel())
    return fault_in_half(Errors(places, actual, exact.double().flatten(), honest), dtype)


def in_int8(tensor):
    """Round to 255 steps between the largest and its negative."""
    step = tensor.abs().amax() / 127
    return (tensor / step).round() * step


def cut(tensor, dtype):
    """Round towards zero."""
    nearest = tensor.to(dtype)
    down = torch.where(tensor > 0, -math.inf, math.inf).to(dtype)
    return torch.where(nearest.double().abs() > tensor.double().abs(), torch.nextafter(nearest, down), nearest)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_factor_a_cut_and_operands_of_fewer_bits_are_no_roundings(dtype):
    a, b = normal(64, 256).to(dtype), normal(256, 64, seed=1).to(dtype)
    exact = a.double() @ b.double()
    found = {
        "factor": fault(exact * 1.01, exact, exact, dtype),
        "smaller": fault(exact * 0.99, exact, exact, dtype),
        "cut": fault(cut(exact, dtype), exact, exact, dtype),
        "int8": fault(in_int8(a.float()) @ in_int8(b.float()), exact, exact, dtype),
        "fp8": fault(a.to(torch.float8_e4m3fn).float() @ b.to(torch.float8_e4m3fn).float(), exact, exact, dtype),
    }
    assert "too large" in found["factor"] or "fewer bits" in found["factor"]
    assert "too small" in found["smaller"] or "fewer bits" in found["smaller"]
    assert "too small" in found["cut"]
    assert "fewer bits" in found["int8"]
    assert "fewer bits" in found["fp8"]


def test_a_factor_of_1_percent_drifts_by_0_8_units_in_bf16():
    """A hundredth of x is 1.28 units; elements below the row's size count by this size: 0.63 of it in the mean."""
    exact = normal(64, 64).double()
    why = fault(exact * 1.01, exact, exact, torch.bfloat16)
    assert why.startswith(("its errors are 0.9", "its values are too large by 0.8"))


def test_factors_of_a_few_rows_in_both_directions_are_chance():
    """Attention's weights in half precision have a common rounding in each row; a factor of all rows is no chance."""
    exact = normal(8, 64).double()
    of_rows = torch.tensor([0.5, -0.5, 0.5, 0.5, 0.5, -0.5, 0.5, 0.5], dtype=torch.float64)[:, None]
    scattered = exact * (1 + of_rows * torch.finfo(torch.bfloat16).eps)
    assert fault(scattered, exact, exact, torch.bfloat16) is None
    assert "too large" in fault(exact * (1 + torch.finfo(torch.bfloat16).eps / 2), exact, exact, torch.bfloat16)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_cut_is_found_in_most_samples_of_64(dtype):
    samples = [normal(64, seed=seed).double() for seed in range(20)]
    assert sum(fault(cut(exact, dtype), exact, exact, dtype) is not None for exact in samples) > 14


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_rounding_and_many_orders_are_honest(dtype):
    a, b = normal(64, 256).to(dtype), normal(256, 64, seed=1).to(dtype)
    exact, honest = a.double() @ b.double(), a.float() @ b.float()
    assert fault(exact, exact, honest, dtype) is None
    assert fault(a.flip(1).float() @ b.flip(0).float(), exact, honest, dtype) is None
    positive = exact.abs()
    assert fault(positive, positive, positive, dtype) is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_may_round_its_weights(dtype):
    q, k, v = (normal(4, 64, 32, seed=seed).to(dtype) for seed in range(3))
    scores = q.double() @ k.double().mT / math.sqrt(32)
    exact = scores.softmax(-1) @ v.double()
    honest = functional.scaled_dot_product_attention(q, k, v)
    rounded = (scores.float().softmax(-1).to(dtype).float() @ v.float()).to(dtype)
    thrice = ((q.float() @ k.float().mT).to(dtype) / math.sqrt(32)).softmax(-1) @ v
    for answer in (honest, rounded, thrice):
        assert fault(answer, exact, honest, dtype) is None
    assert fault(exact * 1.01, exact, honest, torch.bfloat16) is not None


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_few_values_at_steps_are_no_size(dtype):
    exact = normal(64, 64).double()
    actual = exact.clone()
    actual[3, :4] += 1
    assert fault(actual, exact, exact, dtype) is None
    actual[5] += 1
    assert fault(actual, exact, exact, dtype) is not None


def test_a_reference_with_drift_and_size_allows_its_double():
    exact = normal(64, 64).double()
    assert fault(exact * 1.02, exact, exact, torch.bfloat16) is not None
    assert fault(exact * 1.02, exact, exact * 1.015, torch.bfloat16) is None


def test_too_little_other_dtypes_and_zeros_decide_nothing():
    exact = normal(63).double()
    assert fault(exact * 1.01, exact, exact, torch.bfloat16) is None
    exact = normal(64).double()
    assert fault(exact * 1.01, exact, exact, torch.bfloat16) is not None
    assert fault(exact * 1.01, exact, exact, torch.float32) is None
    assert fault(exact * 0, exact * 0, exact * 0, torch.bfloat16) is None


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_values_that_are_not_finite_do_not_count(value):
    exact = normal(64, 64).double()
    exact[3, 4] = value
    assert fault(exact, exact, exact, torch.bfloat16) is None
    assert fault(exact * 1.01, exact, exact, torch.bfloat16) is not None


LAYER = {
    "given": "torch.rand(64, 256).bfloat16()",
    "init": "self.w = nn.Parameter(torch.rand(256, 64).bfloat16())",
    "precision": Precision.BF16,
    "tolerance": ToleranceOverride(floor=0.05),
}


def run(answer, rule=ToleranceRule.MEASURED):
    made = reference("torch.relu(x @ self.w)", **LAYER)
    trials = AnswerTrials(Setup(made, AS_GIVEN_ALONE, begin), lambda plan: Result(answer(plan), None), rule)
    return trials.run(0, 7, timeout_s=60).fault


def product(plan):
    return plan.inputs.args[0].float() @ plan.reference.parameters()["w"].float()


def test_an_answer_within_a_wide_tolerance_is_refused_for_its_errors():
    assert run(lambda plan: product(plan).bfloat16()) is None
    found = run(lambda plan: (product(plan) * 1.01).bfloat16())
    assert found.finding.code == Code.LOWER_PRECISION.value
    assert found.finding.message.startswith("output is within the tolerance, but its ")


def test_kernelbenchs_rule_knows_no_size_of_errors():
    assert run(lambda plan: (product(plan) * 1.002).bfloat16(), ToleranceRule.KERNELBENCH) is None
