"""Numbers of half precision among float32 values."""

import pytest
import torch

from evaluator.judge.numerics.reduced_precision import half_numbers

DRAWN = torch.randn(300, generator=torch.Generator().manual_seed(1))
HALF = DRAWN.half().float()


def test_one_value_of_more_digits_is_enough_to_tell():
    one = HALF.clone()
    one[7] = DRAWN[7]
    assert (half_numbers(HALF, DRAWN), half_numbers(one, DRAWN)) == ("fp16", None)
    assert half_numbers(HALF.double(), DRAWN.double()) == "fp16"
    assert half_numbers(DRAWN.bfloat16().float(), DRAWN) == "bf16"


@pytest.mark.parametrize(
    ("values", "honest"),
    [
        (HALF, HALF + 0.0),  # the reference's values are such numbers too: counts, ties, a cast of the problem
        (HALF[:63], DRAWN[:63]),
        (torch.zeros(300), DRAWN),
        (torch.full((300,), torch.inf), DRAWN),
        (torch.full((300,), torch.nan), DRAWN),
        (HALF.half(), DRAWN.half()),
        (HALF, DRAWN[:200]),
        (torch.empty(0), torch.empty(0)),
        (HALF * 1e6 + 1e-3, DRAWN),  # beyond fp16's range
        (torch.ones(300), DRAWN),
        (torch.arange(1.0, 301.0), DRAWN),
        (DRAWN.sign(), DRAWN),
        ((DRAWN * 50).round(), DRAWN * 50),
        ((DRAWN * 64).round() / 64, DRAWN),
        (HALF, torch.where(torch.arange(300) == 7, 0.3, (DRAWN * 9).round())),  # counts, and one value beside them
    ],
)
def test_what_proves_nothing(values, honest):
    assert half_numbers(values, honest) is None


def test_zeros_beside_half_numbers_count_for_nothing():
    values = torch.where(torch.arange(300) % 3 == 0, 0.0, HALF)
    assert half_numbers(values, DRAWN) == "fp16"


def test_every_value_counts():
    many = torch.randn(1 << 18, generator=torch.Generator().manual_seed(2))
    mixed = torch.where(torch.arange(1 << 18) % 2 == 0, many.half().float(), many)
    assert (half_numbers(many.half().float(), many), half_numbers(mixed, many)) == ("fp16", None)
