"""Products in other orders, and the least favourable partial products."""

import math

import pytest
import torch

from evaluator.judge.numerics.arithmetic_modes import SummationOrder, in_order
from evaluator.judge.numerics.products import PartialProduct

FACTORS = 0.5 + torch.rand(4, 3, 999, generator=torch.Generator().manual_seed(1))
FUNCTIONS = {
    "of all": lambda x: x.prod(),
    "along the last": lambda x: x.prod(-1),
    "along another, kept": lambda x: x.prod(1, keepdim=True),
    "running": lambda x: x.cumprod(-1),
    "running along another": lambda x: x.cumprod(1),
    "of one": lambda x: x[0, 0, 0].prod(0),
    "of one, running": lambda x: x[0, 0, 0].cumprod(0),
    "of none": lambda x: x[:, :, :0].prod(-1),
    "of none, running": lambda x: x[:, :, :0].cumprod(-1),
    "of counts": lambda x: (1 + x).long().prod(1),
    "in another dtype": lambda x: x.prod(1, dtype=torch.float64),
}


def found(function, order, factors=FACTORS):
    with in_order(order):
        return function(factors)


@pytest.mark.parametrize("order", [*SummationOrder, *PartialProduct])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_another_order_gives_the_same_but_for_rounding(name, order):
    plain, other = FUNCTIONS[name](FACTORS), found(FUNCTIONS[name], order)
    assert (other.shape, other.dtype) == (plain.shape, plain.dtype)
    if plain.dtype is torch.float32 and name not in ("of all", "along the last", "running"):
        torch.testing.assert_close(other, plain, rtol=1e-5, atol=0.0)


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("along the last", SummationOrder.REVERSED),
        ("along the last", SummationOrder.SEQUENTIAL),
        ("of all", SummationOrder.REVERSED),
        ("of all", SummationOrder.SEQUENTIAL),
        ("running", SummationOrder.SEQUENTIAL),
    ],
)
def test_another_order_rounds_otherwise(name, order):
    # Factors so near 1 that no product leaves the range.
    factors = 1 + 1e-3 * torch.randn(2, 2, 4096, generator=torch.Generator().manual_seed(2))
    plain, other = FUNCTIONS[name](factors), found(FUNCTIONS[name], order, factors)
    exact = FUNCTIONS[name](factors.double())
    assert not torch.equal(other, plain)
    torch.testing.assert_close(other.double(), exact, rtol=3e-5, atol=0.0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["along the last", "running"])
@pytest.mark.parametrize("largest", [1e30, math.inf])
def test_an_overflow_prints_no_warning(name, largest):
    factors = torch.tensor([[[1.0, largest, largest, 0.0]]])
    assert found(FUNCTIONS[name], SummationOrder.SEQUENTIAL, factors).isnan().any()


@pytest.mark.filterwarnings("error")
def test_a_sum_that_overflows_prints_no_warning():
    assert found(lambda x: x.sum(-1), SummationOrder.SEQUENTIAL, torch.tensor([3e38, 3e38, 3e38])).isinf()


INFINITE = float("inf")
CASES = {
    # Factors, and the products with the least favourable partial products, too large and too small.
    "each order overflows or underflows": ([1e30, 1e-30, 1e30, 1e-30], INFINITE, 0.0),
    "an order nearly overflows": ([1e14, 1e-14, 1e14, 1e-14], INFINITE, 1.0),
    "no order does": ([1e13, 1e-13, 1e13, 1e-13], 1.0, 1.0),
    "a zero beside large factors": ([1e30, 0.0, 1e30], INFINITE, 0.0),
    "negative factors": ([-1e30, 1e-30, -1e30, 1e-30], INFINITE, 0.0),
    "no order does, with a zero": ([1e13, 1e-13, 0.0], 0.0, 0.0),
    "an infinite factor": ([INFINITE, 1e-30, 1e-30], INFINITE, INFINITE),
}


@pytest.mark.parametrize("case", CASES)
def test_a_product_takes_the_worst_subset(case):
    factors, large, small = CASES[case]
    given = torch.tensor(factors)
    assert float(found(torch.prod, PartialProduct.OVERFLOW, given)) == pytest.approx(large)
    assert float(found(torch.prod, PartialProduct.UNDERFLOW, given)) == pytest.approx(small)


RUNNING = {
    "a segment nearly overflows": ([1e-30, 1e13, 1e14], [1e-30, 1e-17, INFINITE], [1e-30, 1e-17, 1e-3]),
    "a segment overflows": ([1e-30, 1e20, 1e20], [1e-30, 1e-10, INFINITE], [1e-30, 1e-10, 1e10]),
    "a segment underflows": ([1e25, 1e-20, 1e-20], [1e25, 1e5, 1e-15], [1e25, 1e5, 0.0]),
    "the first factors nearly overflow": ([1e14, 1e14, 1e-9], [1e14, INFINITE, INFINITE], [1e14, 1e28, 1e19]),
    "later products too": ([1e-30, 1e20, 1e20, 1e-20], [1e-30, 1e-10, INFINITE, INFINITE], [1e-30, 1e-10, 1e10, 1e-10]),
    "later small products too": ([1e25, 1e-20, 1e-20, 1e5], [1e25, 1e5, 1e-15, 1e-10], [1e25, 1e5, 0.0, 0.0]),
    "no scan multiplies factors that are apart": ([1e20, 1e-20, 1e20, 1e-20], [1e20, 1, 1e20, 1], [1e20, 1, 1e20, 1]),
    "a zero parts segments": ([1e20, 0.0, 1e20], [1e20, 0, 0], [1e20, 0, 0]),
    "a zero hides no overflow": ([1e-30, 0.0, 1e20, 1e20], [1e-30, 0, 0, INFINITE], [1e-30, 0, 0, 0]),
}  # fmt: skip


@pytest.mark.parametrize("case", RUNNING)
def test_a_running_product_takes_the_worst_segment(case):
    factors, large, small = RUNNING[case]
    given = torch.tensor(factors)
    for order, wanted in ((PartialProduct.OVERFLOW, large), (PartialProduct.UNDERFLOW, small)):
        assert found(lambda x: x.cumprod(0), order, given).tolist() == pytest.approx(wanted)


def test_half_precision_multiplies_in_fp32():
    given = torch.tensor([6e4, 1e-4, 1e-4, 6e4], dtype=torch.float16)
    for order in PartialProduct:
        assert float(found(torch.prod, order, given)) == pytest.approx(36.0, rel=0.01)
