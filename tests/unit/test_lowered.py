"""Fewer bits than fp32 are told apart from other errors, by the errors themselves."""

import copy

import pytest
import torch

from evaluator.judge.arithmetic import Format, Order, in_order, rounded, with_operands
from evaluator.judge.lowered import format_of, rounded_weights
from evaluator.judge.reference import by_path
from tests.unit.references import reference

MLP = "self.two(torch.relu(self.one(x)))"
INIT = "self.one = nn.Linear(64, 128); self.two = nn.Linear(128, 64)"
GIVEN = "torch.randn(32, 64)"


@pytest.fixture
def mlp():
    return reference(MLP, GIVEN, INIT)


ALIKE = {Format.TF32: {Format.TF32, Format.FP16}, Format.FP16: {Format.TF32, Format.FP16}}


def found(made, actual, inputs):
    return format_of(made, inputs, 0, None, "output", actual)


def is_found(made, actual, inputs, to):
    return found(made, actual, inputs) in ALIKE.get(to, {to})


def run(made, inputs, mode):
    return by_path(made.altered(inputs, 0, None, mode))["output"]


@pytest.mark.parametrize("to", Format)
def test_rounded_operands_are_recognised(mlp, to):
    inputs = mlp.draw(5)
    assert is_found(mlp, run(mlp, inputs, with_operands(to)), inputs, to)


@pytest.mark.parametrize("to", Format)
def test_rounded_inputs_and_weights_are_recognised(to):
    made = reference("torch.sin(x) * self.weight", "torch.randn(32, 64)", "self.weight = nn.Parameter(torch.randn(64))")
    inputs = made.draw(5)
    low = inputs._replace(args=[rounded(inputs.args[0], to)])
    before = made.model.weight.detach().clone()
    with rounded_weights(made.model, to):
        assert not made.model.weight.equal(before)
        actual = made.forward(low, 0)
    assert made.model.weight.equal(before)
    assert is_found(made, actual, inputs, to)


@pytest.mark.parametrize("to", [Format.BF16, Format.FP16])
def test_a_rounded_output_is_recognised(mlp, to):
    inputs = mlp.draw(5)
    half = torch.bfloat16 if to is Format.BF16 else torch.float16
    assert is_found(mlp, mlp.forward(inputs, 0).to(half).float(), inputs, to)


def test_a_model_in_bf16_is_recognised(mlp):
    inputs = mlp.draw(5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = mlp.forward(inputs, 0)
    assert found(mlp, actual.float(), inputs) is Format.BF16
    actual = copy.deepcopy(mlp.model).bfloat16()(inputs.args[0].bfloat16()).float()
    assert found(mlp, actual.detach(), inputs) is Format.BF16


@pytest.mark.parametrize(
    "wrong",
    [
        lambda right: right * 1.001,
        lambda right: right + 1e-3 * torch.randn(right.shape, generator=torch.Generator().manual_seed(1)),
        lambda right: right.roll(1, 0),
        torch.zeros_like,
        lambda right: right.clamp(min=0),
        lambda right: torch.full_like(right, float("nan")),
    ],
    ids=["scaled", "noise", "shifted", "zeros", "clamped", "nan"],
)
def test_other_errors_are_not_taken_for_rounding(mlp, wrong):
    inputs = mlp.draw(5)
    assert found(mlp, wrong(mlp.forward(inputs, 0)), inputs) is None


def test_honest_rounding_is_not_taken_for_less(mlp):
    inputs = mlp.draw(5)
    assert found(mlp, mlp.forward(inputs, 0), inputs) is None
    for order in Order:
        assert found(mlp, run(mlp, inputs, in_order(order)), inputs) is None
