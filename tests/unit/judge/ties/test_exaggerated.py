"""Exaggerated roundings: a multiple of an order's own, and nothing else."""

import pytest
import torch

from evaluator.judge.numerics.arithmetic_modes import Order, in_order
from evaluator.judge.ties.exaggerated import exaggerated


def positive(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) + 0.5


def test_a_sum_is_so_many_times_as_far_off():
    x = positive(64, 4096)
    plain = x.sum(1)
    with in_order(Order.REVERSED):
        once = x.sum(1)
    with exaggerated(Order.REVERSED, 4.0, draw=0):
        found = x.sum(1)
    assert bool((once != plain).any())
    assert torch.equal(found, plain + 4 * (once - plain))


def test_each_result_is_off_by_so_many_units_in_the_last_place():
    x = positive(4096)
    with exaggerated(Order.ROUNDED, 4.0, draw=0):
        found = x * x
    off = ((found.double() - (x * x).double()) / ((x * x).double() * torch.finfo(x.dtype).eps)).abs()
    assert float(off.min()) >= 2  # the perturbed result is rounded
    assert float(off.mean()) == pytest.approx(4, rel=0.1)


def test_draws_and_operations_of_a_draw_differ():
    x = positive(4096)

    def squares(draw):
        with exaggerated(Order.ROUNDED, 4.0, draw):
            return x * x, x * x

    (first, second), (other, _) = squares(0), squares(1)
    assert not torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(first, squares(0)[0])


def test_operations_that_write_or_draw_run_once():
    total = torch.zeros(8)
    with exaggerated(Order.ROUNDED, 4.0, draw=0):
        total += 1
        torch.manual_seed(3)
        drawn = torch.rand(8)
    torch.manual_seed(3)
    assert torch.equal(total, torch.ones(8))
    assert torch.equal(drawn, torch.rand(8))


def test_views_integers_and_infinities_stay():
    x, inf = positive(4, 4), torch.tensor([float("inf"), float("nan")])
    with exaggerated(Order.ROUNDED, 4.0, draw=0):
        view, counts, same = x.t(), torch.arange(4) + 1, inf + 1
        parts = x.split(2)
    assert view.data_ptr() == x.data_ptr()
    assert torch.equal(counts, torch.arange(1, 5))
    assert same.isinf().tolist() == [True, False]
    assert same.isnan().tolist() == [False, True]
    assert parts[1].data_ptr() == x[2:].data_ptr()
