"""Controls that compute products in fewer bits, or sums of fewer terms."""

import pytest
import torch
from torch.nn import functional

from evaluator.admission.negative_controls import IN_FEWER_BITS, ControlCall, NegativeControl, answer
from evaluator.admission.numeric_controls import Effect, Operands, in_operands, with_operands_in, with_terms_left_out
from evaluator.judge.reference.reference import Reference, by_path
from evaluator.records import Precision, SizeName
from tests.unit.references import problem

HALF = {"precision": Precision.BF16}


def case(output, given, **made):
    reference = Reference(problem(output, given, **made), SizeName.SMALL, 1)
    inputs = reference.draw(1)
    exact = by_path(reference.expected(inputs, 0, None).honest)
    return ControlCall(reference, reference, inputs, inputs, exact, exact)


def product(dtype="bfloat16", rows=8, terms=256):
    return f"torch.randn({rows}, {terms}).to(torch.{dtype}), torch.randn({terms}, {rows}).to(torch.{dtype})"


@pytest.mark.parametrize(
    ("to", "least", "most"),
    [(Operands.BF16, 1e-3, 4e-3), (Operands.INT8, 4e-3, 2e-2), (Operands.FP8, 2e-2, 6e-2), (Operands.INT4, 5e-2, 0.2)],
)
@pytest.mark.parametrize("columns", [96, 100])
def test_operands_are_as_far_off_as_their_format(to, least, most, columns):
    exact = torch.randn(64, columns, generator=torch.Generator().manual_seed(0))
    error = in_operands(exact, to, 1, is_second=True) - exact
    assert least < error.norm() / exact.norm() < most


@pytest.mark.parametrize("to", Operands)
@pytest.mark.parametrize("value", [0.0, torch.inf])
def test_zeros_and_infinity_have_no_scale(to, value):
    operand = torch.full((2, 40), value)
    result = in_operands(operand, to, 1, is_second=True)
    assert to in (Operands.INT8, Operands.INT4, Operands.FP8) or torch.equal(result, operand)
    assert value or torch.equal(result, operand)


def test_weights_alone_are_in_int4_and_their_scales_follow_the_terms():
    x, weight = torch.randn(4, 64), torch.randn(64, 4)
    weight[32:] *= 1000
    assert torch.equal(in_operands(x, Operands.INT4, -1, is_second=False), x)
    coarse = in_operands(weight, Operands.INT4, -2, is_second=True)
    assert float((coarse - weight)[:32].abs().max()) < 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: x @ w,
        lambda x, w: functional.linear(x, w.T.contiguous(), w[0]),
        lambda x, w: torch.bmm(x[None], w[None])[0],
        lambda x, w: x @ w[:, 0],
        lambda x, w: functional.conv2d(x.reshape(-1, 32, 4, 4), w.T.reshape(-1, 32, 2, 2), w.T[0, :128]),
        lambda x, w: functional.conv_transpose2d(x.reshape(-1, 32, 4, 4), w.T.reshape(32, -1, 2, 2)),
        lambda x, w: functional.scaled_dot_product_attention(x[None, None], x[None, None], w.T[None, None]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_kind_of_product_has_operands_in_fewer_bits(function, dtype):
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(shape, generator=generator).to(dtype) for shape in ((32, 512), (512, 32)))
    exact = function(x.double(), weight.double())
    effect = Effect()
    with with_operands_in(Operands.FP8, effect):
        result = function(x, weight)
    assert effect.changed
    assert result.dtype == dtype
    assert 0.01 < (result.double() - exact).norm() / exact.norm() < 0.5


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x @ x.T,
        lambda x: x.sum(1),
        lambda x: x.sum((0, 1)),
        lambda x: x.mean(),
        lambda x: functional.mse_loss(x, x.flip(0)),
        lambda x: functional.cross_entropy(x, torch.arange(64)),
        lambda x: functional.layer_norm(x, (256,)),
        lambda x: functional.softmax(x, 1),
        lambda x: functional.conv1d(x.reshape(16, 16, 64), x.reshape(256, 16, 4)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_an_eighth_of_each_sum_is_missing_and_the_rest_scaled_up(function, dtype):
    x = (torch.rand(64, 256, generator=torch.Generator().manual_seed(0)) + 1).to(dtype)
    exact = function(x.double())
    effect = Effect()
    with with_terms_left_out(effect):
        result = function(x)
    assert effect.changed
    assert result.dtype == dtype
    error = float((result.double() - exact).norm() / exact.norm())
    assert 1e-4 < error < 0.3


def test_without_a_sum_or_a_product_the_controls_do_not_apply():
    made = case("torch.relu(x)", "torch.randn(8, 64).bfloat16()", **HALF)
    controls = (NegativeControl.SEVEN_EIGHTHS, NegativeControl.FP8, NegativeControl.INT8, NegativeControl.INT4)
    assert [answer(control, made) for control in controls] == [None] * 4


@pytest.mark.parametrize(
    ("precision", "dtype", "expected"),
    [
        (Precision.BF16, "bfloat16", {NegativeControl.FP8, NegativeControl.INT8, NegativeControl.INT4}),
        (
            Precision.FP16,
            "float16",
            {NegativeControl.BF16, NegativeControl.FP8, NegativeControl.INT8, NegativeControl.INT4},
        ),
        (Precision.FP32, "float32", {NegativeControl.TF32, NegativeControl.BF16, NegativeControl.FP16}),
    ],
)
def test_each_precision_has_controls_with_fewer_bits(precision, dtype, expected):
    made = case("a @ b", product(dtype), forward="a, b", precision=precision)
    result = {control: answer(control, made) for control in IN_FEWER_BITS}
    assert {control for control, values in result.items() if values is not None} == expected
    exact = made.exact["output"].double()
    for control in expected:
        error = result[control]["output"].double() - exact
        assert 1e-4 < float(error.norm() / exact.norm()) < 0.3


def test_operands_that_have_the_format_are_no_control():
    codes = "torch.randint(-7, 8, (8, 32)).bfloat16(), torch.randint(-7, 8, (32, 8)).bfloat16()"
    made = case("a @ b", codes, forward="a, b", **HALF)
    made.inputs.args[0][:, 0] = 7
    made.inputs.args[1][0] = 7
    assert answer(NegativeControl.INT4, made) is None
    assert answer(NegativeControl.FP8, made) is None  # up to 7, with a scale of 1/64
    assert answer(NegativeControl.INT8, made) is not None


def test_rank_one_is_near_a_product_of_positive_matrices_and_far_from_others():
    positive = case("a @ b", "torch.rand(16, 4096), torch.rand(4096, 16)", forward="a, b")
    signed = case("a @ b", "torch.randn(16, 4096), torch.randn(4096, 16)", forward="a, b")
    near, far = (
        float((answer(NegativeControl.RANK_ONE, call)["output"] - call.exact["output"]).norm())
        / float(call.exact["output"].norm())
        for call in (positive, signed)
    )
    assert near < 0.01 < 0.5 < far
    assert answer(NegativeControl.RANK_ONE, case("x.sum(1)", "torch.rand(8, 64)")) is None
