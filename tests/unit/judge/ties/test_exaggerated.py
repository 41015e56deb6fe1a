"""Exaggerated roundings: a multiple of an order's own, of inexact results alone, and the same for equal values."""

import pytest
import torch

from evaluator.judge.numerics.arithmetic_modes import Order, in_order
from evaluator.judge.numerics.single_accumulator import LongSum
from evaluator.judge.ties.exaggerated import exaggerated

FACTOR = 4.0


def positive(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) + 0.5


def rounded(compute, draw=0):
    with exaggerated(Order.ROUNDED, FACTOR, draw):
        return compute()


def test_a_sum_is_so_many_times_as_far_off():
    x = positive(64, 4096)
    plain = x.sum(1)
    with in_order(Order.REVERSED):
        once = x.sum(1)
    with exaggerated(Order.REVERSED, FACTOR, draw=0):
        found = x.sum(1)
    moved = found != plain
    assert int(moved.sum()) > 16
    assert torch.equal(found[moved], (plain + FACTOR * (once - plain))[moved])


def test_each_result_is_off_by_so_many_units_in_the_last_place():
    x = positive(4096) / 3
    plain, found = (x * x).double(), rounded(lambda: x * x).double()
    off = ((found - plain) / plain / torch.finfo(torch.float32).eps).abs()
    assert float(off.median()) == pytest.approx(FACTOR, rel=0.1)
    assert min(int((found > plain).sum()), int((found < plain).sum())) > 1800


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_results_of_other_dtypes_stay(dtype):
    x = (positive(4096) / 3).to(dtype)
    assert torch.equal(rounded(lambda: x * x + x), x * x + x)


def test_draws_differ_and_equal_values_do_not():
    x = positive(4096)
    first, second = rounded(lambda: (x * x, x.flip(0) * x.flip(0)))
    assert torch.equal(first, second.flip(0))
    other = rounded(lambda: x * x, draw=1)
    assert not torch.equal(first, other)
    assert torch.equal(first, rounded(lambda: x * x))


@pytest.mark.parametrize("order", [Order.SEQUENTIAL, LongSum.ATOMIC])
def test_equal_products_have_equal_roundings_and_others_do_not(order):
    a, b, c = (torch.randn(32, 256, generator=torch.Generator().manual_seed(seed)) for seed in range(3))
    with exaggerated(order, FACTOR, draw=0):
        once, again, other = a @ b.T, a @ b.T, a @ c.T
    assert torch.equal(once, again)
    assert not torch.equal(once - a @ b.T, other - a @ c.T)
    with exaggerated(order, FACTOR, draw=1):
        assert not torch.equal(once, a @ b.T)


EXACT = {
    "maximum": lambda x: x.amax(1),
    "pooling": lambda x: torch.nn.functional.max_pool1d(x, 3),
    "count": lambda x: (x > 0.7).float().sum(1),
    "selection": lambda x: torch.where(x > 0.7, x, 0.0),
    "relu": lambda x: torch.relu(x - x.round()).sign(),
    "negation": lambda x: -x,
    "flip": lambda x: x.flip(1),
    "median": lambda x: x.median(1).values,
    "fill": lambda x: x.masked_fill(x > 0.7, 0.1),
    "doubled": lambda x: x * 2,
    "product of whole numbers": lambda x: (x * 9).round() @ (x.T * 9).round(),
    "chosen rows": lambda x: torch.eye(48)[torch.arange(48).flip(0)] @ x,
    "filter with a power of two": lambda x: torch.nn.functional.avg_pool1d((x * 9).round(), 4),
    "mean of whole numbers": lambda x: (x * 9).round()[:, :64].mean(1),
    "numbers in turn": lambda x: torch.arange(64, dtype=torch.float32) / 4 + torch.full((64,), 0.1) * 0,
    "cast": lambda x: x.to(torch.bfloat16),
    "written cast": lambda x: torch.empty(x.shape, dtype=torch.bfloat16).copy_(x),
}


@pytest.mark.parametrize("order", [Order.ROUNDED, Order.SEQUENTIAL])
@pytest.mark.parametrize("compute", EXACT.values(), ids=EXACT)
def test_exact_results_stay(compute, order):
    x = positive(48, 96)
    plain = compute(x)
    with exaggerated(order, FACTOR, draw=0):
        found = compute(x)
    differs = found != plain
    # Of products by a factor rounded to fp32 alone, none is exact.
    assert not differs.any(), differs.sum()


def test_a_few_exact_results_are_exact_by_chance():
    many, few = positive(16384) / 3, positive(64) / 3
    many[5] = few[5] = torch.tensor(torch.e)
    many[7] = torch.inf
    assert float(rounded(lambda: many / torch.e)[5]) != 1
    assert float(rounded(lambda: many / torch.e)[7]) == torch.inf
    assert float(rounded(lambda: few / torch.e)[5]) == 1


def test_written_results_are_those_of_the_operation_without_writing():
    x, y = positive(4096), positive(4096, seed=1)
    written = x.clone()
    with exaggerated(Order.ROUNDED, FACTOR, draw=0):
        expected = torch.addcmul(x, x, y).mul(255.3).sqrt()
        written.addcmul_(x, y).mul_(255.3).sqrt_()
    assert torch.equal(written, expected)
    assert not torch.equal(written, torch.addcmul(x, x, y).mul(255.3).sqrt())


def test_operations_that_write_or_draw_run_once():
    total, turned = torch.zeros(8), positive(4, 4)
    before = turned.clone()
    with exaggerated(Order.ROUNDED, FACTOR, draw=0):
        total += 1
        turned.t_()
        torch.manual_seed(3)
        drawn = torch.rand(8)
        noise = torch.zeros(8).normal_()
        coins = torch.bernoulli(before / 2)
    torch.manual_seed(3)
    assert torch.equal(total, torch.ones(8))
    assert torch.equal(turned, before.T)
    assert torch.equal(drawn, torch.rand(8))
    assert torch.equal(noise, torch.zeros(8).normal_())
    assert torch.equal(coins, torch.bernoulli(before / 2))


def test_each_step_of_a_softmax_is_moved():
    x = positive(64, 64) * 40
    plain = torch.softmax(x, 1)
    off = (rounded(lambda: torch.softmax(x, 1)) - plain).abs() / plain
    assert float(off.max()) > 40 * torch.finfo(x.dtype).eps  # arguments of exp are moved too


def test_a_result_with_a_named_dtype_is_exact_only_if_float64_gives_it():
    x = positive(512, 7) / 3
    moved = rounded(lambda: x.sum(1, dtype=torch.float32)) != x.sum(1)
    assert float(moved.float().mean()) > 0.9


def test_lists_and_new_shapes_are_written_as_they_are():
    lists, shaped = [positive(8), positive(8, seed=1)], positive(8)
    expected = [each * 2 for each in lists]
    with exaggerated(Order.ROUNDED, FACTOR, draw=0):
        torch._foreach_mul_(lists, 2.0)
        shaped.resize_(2, 4).mul_(1.3)
    assert all(map(torch.equal, lists, expected))
    assert shaped.shape == (2, 4)


def test_views_integers_and_infinities_stay():
    x, inf = positive(4, 4), torch.tensor([float("inf"), float("nan")])
    view, counts, same, parts = rounded(lambda: (x.t(), torch.arange(4) + 1, inf / 3, x.split(2)))
    assert view.data_ptr() == x.data_ptr()
    assert torch.equal(counts, torch.arange(1, 5))
    assert same.isinf().tolist() == [True, False]
    assert same.isnan().tolist() == [False, True]
    assert parts[1].data_ptr() == x[2:].data_ptr()


def test_sparse_intermediates_stay():
    x = positive(8, 8).relu()
    found = rounded(lambda: torch.sparse.mm(x.to_sparse(), x) > 4)
    assert found.shape == (8, 8)
