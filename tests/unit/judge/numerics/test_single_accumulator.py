"""Sums in one fp32 accumulator: computed, and drawn from a model that is held against computed ones."""

import numpy as np
import pytest
import torch

from evaluator.judge.numerics.single_accumulator import LONGEST, accumulated, products_in_sum, rounding, running

TERMS = {
    "normal": lambda shape, drawn: torch.randn(shape, generator=drawn) * torch.randn(shape, generator=drawn),
    "positive": lambda shape, drawn: torch.rand(shape, generator=drawn),
    "outliers": lambda shape, drawn: torch.randn(shape, generator=drawn) ** 5,
}


def test_terms_are_added_from_first_to_last():
    terms = torch.rand(3, 1000, generator=torch.Generator().manual_seed(1))
    expected = np.zeros(3, dtype=np.float32)
    for column in terms.numpy().T:
        expected += column
    assert running(terms)[:, -1].tolist() == expected.tolist()


def test_the_largest_term_comes_first():
    terms = torch.tensor([[1.0, -(2.0**24), 1.0, 5.0], [3.0, 2.0, 1.0, 0.5], [1.0, 1.0, 1.0, 2.0**24]])
    assert accumulated(terms).tolist() == [-(2.0**24) + 7, 6.5, 2.0**24]
    assert terms[0].tolist() == [1.0, -(2.0**24), 1.0, 5.0]
    assert accumulated(torch.ones(2, 0)).tolist() == [0, 0]


@pytest.mark.parametrize(
    "shape", [(1000,), (1, 1000), (2, 1000), (65, 70_001), (7, 3, 129), (70_000, 64), (4, 1), (0, 9), (9, 0)]
)
def test_every_row_is_added_in_turn_in_blocks_of_rows(shape):
    terms = torch.rand(shape, generator=torch.Generator().manual_seed(2)) - 0.5
    terms[..., :1] = 1.0  # the largest, so that the order stays
    expected = running(terms)[..., -1] if shape[-1] else torch.zeros(shape[:-1])
    assert torch.equal(accumulated(terms), expected)


def test_negative_zeros_stay_and_half_precision_is_added_in_fp32():
    zeros = torch.full((3, 5), -0.0)
    assert torch.signbit(accumulated(zeros)).all()
    many = torch.full((2, 4096), 1.5, dtype=torch.float16)
    assert accumulated(many).tolist() == [6144.0, 6144.0]


def test_rows_of_infinity_and_nan_do_not_reach_other_rows():
    terms = torch.rand(3, 100, generator=torch.Generator().manual_seed(4))
    plain = accumulated(terms)
    terms[0, 5], terms[1, 7] = float("inf"), float("nan")
    found = accumulated(terms)
    assert found[0] == float("inf")
    assert found[1].isnan()
    assert found[2] == plain[2]


@pytest.mark.parametrize("count", [64, 4096, 65_536])
@pytest.mark.parametrize("kind", TERMS)
def test_the_model_has_the_size_of_computed_errors(kind, count):
    drawn = torch.Generator().manual_seed(count)
    terms = TERMS[kind]((200, count), drawn)
    exact = terms.double().sum(-1)
    computed = (accumulated(terms) - exact).square().mean().sqrt()
    modelled = rounding(exact.float(), terms.double().square().sum(-1), count, drawn).double().square().mean().sqrt()
    assert 0.5 < float(computed / modelled) < 2


def test_a_longer_sum_has_several_accumulators():
    terms = torch.rand(2 * LONGEST + 5, generator=torch.Generator().manual_seed(3))
    parts = [accumulated(part) for part in terms.split(LONGEST)]
    assert float(accumulated(terms)) == float(torch.stack(parts).sum())
    drawn = torch.Generator().manual_seed(1)
    sums, squares = torch.full((999,), 8.0), torch.full((999,), 64.0)
    one, many = (float(rounding(sums, squares, LONGEST * n, drawn).square().mean().sqrt()) for n in (1, 16))
    assert 0.2 < many / one < 0.8


def test_an_infinite_sum_has_no_rounding():
    sums = torch.tensor([float("inf"), float("nan"), 1.0])
    found = rounding(sums, sums.square(), 8, torch.Generator().manual_seed(0))
    assert found[:2].tolist() == [0, 0]
    assert 0 < float(found[2].abs()) < 1e-5


@pytest.mark.parametrize(("groups", "transposed", "shape"), [(1, False, (8, 6, 3, 3)), (2, False, (8, 3, 3, 3))])
def test_the_products_of_a_convolution_are_counted(groups, transposed, shape):
    assert products_in_sum(torch.empty(shape), transposed=transposed, groups=groups) == shape[1] * 9


def test_the_products_of_a_transposed_convolution_are_counted():
    assert products_in_sum(torch.empty(6, 8, 3, 3), transposed=True, groups=2) == 27
