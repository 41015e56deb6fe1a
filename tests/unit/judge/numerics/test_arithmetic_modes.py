"""The reference computed otherwise: the same function, other rounding."""

import pytest
import torch
from torch.nn import functional

from evaluator.judge.numerics.arithmetic_modes import (
    Format,
    SummationOrder,
    in_order,
    moved,
    product_handlers,
    rounded,
    with_handlers,
    with_operands,
)

A, B = torch.randn(2, 3, 96, 96, generator=torch.Generator().manual_seed(1))
BIAS = torch.randn(96, generator=torch.Generator().manual_seed(2))
IMAGES = torch.randn(2, 16, 12, 12, generator=torch.Generator().manual_seed(3))
KERNEL = torch.randn(8, 16, 3, 3, generator=torch.Generator().manual_seed(4))

FUNCTIONS = {
    "mm": lambda to: to(A[0]) @ to(B[0]),
    "bmm": lambda to: to(A) @ to(B),
    "mv": lambda to: to(A[0]) @ to(BIAS),
    "dot": lambda to: to(A[0, 0]) @ to(BIAS),
    "linear": lambda to: functional.linear(to(A), to(B[0]), to(BIAS)),
    "addmm": lambda to: torch.addmm(to(BIAS), to(A[0]), to(B[0]), beta=0.5, alpha=2),
    "addmv": lambda to: torch.addmv(to(BIAS), to(A[0]), to(B[0, 0]), beta=0.5, alpha=2),
    "baddbmm": lambda to: torch.baddbmm(to(A), to(A), to(B)),
    "sum": lambda to: to(A).sum(),
    "sum of two": lambda to: to(A).sum((0, 2), keepdim=True),
    "mean": lambda to: to(A).mean(-1),
    "mean of all": lambda to: to(A).mean(),
    "conv": lambda to: functional.conv2d(to(IMAGES), to(KERNEL), to(BIAS[:8]), padding=1),
    "conv transposed": lambda to: functional.conv_transpose2d(to(IMAGES), to(KERNEL.transpose(0, 1)), to(BIAS[:8])),
    "conv in groups": lambda to: functional.conv2d(to(IMAGES), to(KERNEL[:, :8]), groups=2),
    "attention": lambda to: functional.scaled_dot_product_attention(to(A), to(B), to(A)),
}
PRODUCTS = [name for name in FUNCTIONS if "sum" not in name and "mean" not in name]


def error(name, mode):
    """Give the largest error, as a part of the output's root mean square."""
    exact = FUNCTIONS[name](torch.Tensor.double)
    with mode:
        found = FUNCTIONS[name](lambda tensor: tensor)
    assert found.shape == exact.shape
    assert found.dtype == torch.float32
    return float((found - exact).abs().max() / exact.square().mean().sqrt())


@pytest.mark.parametrize("order", SummationOrder)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_another_order_gives_the_same_but_for_rounding(name, order):
    assert error(name, in_order(order)) < 3e-5


@pytest.mark.parametrize("order", [SummationOrder.REVERSED, SummationOrder.SEQUENTIAL, SummationOrder.ROUNDED])
def test_another_order_is_another_order(order):
    plain = FUNCTIONS["mm"](lambda tensor: tensor)
    with in_order(order):
        assert not torch.equal(FUNCTIONS["mm"](lambda tensor: tensor), plain)


@pytest.mark.parametrize(
    "function", [lambda x: x.sum(1), lambda x: x.mean((1,), keepdim=True), lambda x: x @ x[0], lambda x: x.sum(1) / 3]
)
def test_each_draw_of_a_sum_has_other_roundings_of_equal_size(function):
    x = torch.rand(400, 4096, generator=torch.Generator().manual_seed(5))
    errors = []
    for draw in range(8):
        with in_order(SummationOrder.SEQUENTIAL, draw):
            errors.append((function(x) - function(x.double())).flatten())
    sizes = torch.stack(errors).square().mean(1).sqrt()
    assert bool((sizes / sizes[0] < 2).all() & (sizes / sizes[0] > 0.5).all())
    assert float(torch.corrcoef(torch.stack(errors)).fill_diagonal_(0).abs().max()) < 0.25


@pytest.mark.parametrize("draw", [0, 3])
@pytest.mark.parametrize("name", ["sum", "sum of two", "mean", "mean of all"])
def test_a_drawn_sum_is_the_same_but_for_rounding(name, draw):
    assert error(name, in_order(SummationOrder.SEQUENTIAL, draw)) < 3e-5


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_in_fewer_bits_are_off_by_what_those_bits_hold(name):
    assert 1e-4 < error(name, with_operands(Format.TF32)) < 5e-3
    assert 1e-4 < error(name, with_operands(Format.FP16)) < 5e-3
    assert 1e-3 < error(name, with_operands(Format.BF16)) < 4e-2
    assert error(name, with_operands(Format.TF32_CUT)) > error(name, with_operands(Format.TF32))


def test_each_draw_of_rounded_operands_has_other_roundings_of_inexact_operands_alone():
    """Operands that are bf16 numbers keep their values, as inputs of a bf16 problem do."""
    a, b = torch.rand(64, 512, generator=torch.Generator().manual_seed(1)), torch.eye(512)
    answers = []
    for draw in range(4):
        with with_operands(Format.BF16, draw):
            answers.append(a @ b)
            exact = a.bfloat16().float()
            assert torch.equal(exact @ b, exact)
    errors = torch.stack([(answer - a).flatten() for answer in answers])
    assert bool((errors.abs().amax(1) <= 2**-8).all() & (errors.abs().amax(1) > 2**-10).all())
    assert float(torch.corrcoef(errors).fill_diagonal_(0).abs().max()) < 0.25


def test_a_draw_leaves_operands_that_the_format_cannot_hold():
    large = torch.tensor([[1e5, 3.0]])
    with with_operands(Format.FP16, 1):
        assert torch.equal(large @ torch.eye(2), large)
    with with_operands(Format.FP16):
        assert not (large @ torch.eye(2)).isfinite().all()


CHOICES = {
    "index": lambda x: x[torch.tensor([2, 0])],
    "index_select": lambda x: x.index_select(0, torch.tensor([2, 0])),
    "gather": lambda x: x.gather(1, torch.zeros(96, 4, dtype=torch.int64)),
    "embedding": lambda x: functional.embedding(torch.tensor([2, 0]), x),
    "take": lambda x: x.take(torch.tensor([5, 4])),
    "masked_select": lambda x: x.masked_select(x > 0),
    "sort": lambda x: torch.sort(x).values,
    "stable sort": lambda x: torch.sort(x, stable=True).values,
    "topk": lambda x: x.topk(3).values,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CHOICES)
def test_elements_that_are_chosen_are_not_rounded(name, dtype):
    """A kernel reads keys of a cache by a page table: half a unit in bfloat16 would move their scores by 0.4 %."""
    given = A[0].to(dtype)
    plain = CHOICES[name](given)
    with in_order(SummationOrder.ROUNDED):
        assert torch.equal(CHOICES[name](given), plain)
        assert not torch.equal(CHOICES[name](given) * 3, plain * 3)


def test_tf32_keeps_ten_bits():
    one = torch.tensor([1.0, 1 + 2**-10, 1 + 2**-11, 1 + 2**-11 + 2**-20, -3e38, float("inf"), float("nan")])
    assert rounded(one, Format.TF32)[:4].tolist() == [1.0, 1 + 2**-10, 1.0, 1 + 2**-10]
    assert rounded(one, Format.TF32_CUT)[:4].tolist() == [1.0, 1 + 2**-10, 1.0, 1.0]
    assert rounded(one, Format.TF32)[5] == float("inf")
    assert rounded(one, Format.TF32)[6].isnan()


def test_noise_is_a_unit_and_leaves_what_is_not_finite():
    values = torch.tensor([1.0, -2.0, 0.0, float("inf"), float("-inf")])
    noisy = moved(values)
    assert (noisy - values)[:3].abs().tolist() == pytest.approx([2**-23, 2**-22, 0.0])
    assert noisy[3:].tolist() == values[3:].tolist()
    assert moved(torch.arange(3)).tolist() == [0, 1, 2]


@pytest.mark.parametrize("order", SummationOrder)
def test_a_product_over_an_empty_dimension_is_zero_in_every_order(order):
    with in_order(order):
        assert torch.equal(torch.ones(2, 0) @ torch.ones(0, 3), torch.zeros(2, 3))
        assert torch.equal(torch.ones(2, 0).sum(-1), torch.zeros(2))


@pytest.mark.parametrize("name", ["mm", "bmm", "mv", "dot", "linear", "addmm", "addmv", "baddbmm"])
def test_a_handler_of_products_gets_every_product(name):
    met = []
    with with_handlers(product_handlers(lambda func, a, b: met.append(func) or 2 * func(a, b))):
        doubled = FUNCTIONS[name](lambda tensor: tensor)
    assert len(met) == 1
    assert not torch.allclose(doubled, FUNCTIONS[name](lambda tensor: tensor))
