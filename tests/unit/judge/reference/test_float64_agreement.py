"""Agreement of float64 with the problem's precision: accepted differences, also with infinite values and NaN."""

import math

import pytest
import torch

from evaluator.judge.reference.agreement import near

PLAIN = torch.randn(64, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("part", "is_near"), [(0.09, True), (0.12, False)])
@pytest.mark.parametrize("extra", [None, math.inf, math.nan])
def test_a_distance_of_a_tenth_of_the_size_is_near_whether_or_not_all_values_are_finite(part, is_near, extra):
    plain, wide = PLAIN.clone(), PLAIN.double() * (1 + part)
    if extra is not None:
        plain[3, 4] = extra
        wide[5, 6] = extra
    assert near(wide, plain) is is_near


def test_a_complex_tensor_is_compared_too():
    plain = torch.complex(PLAIN, PLAIN.flip(0))
    wide = plain.to(torch.complex128)
    assert near(wide, plain)
    assert not near(wide * 1.5, plain)
    wide[0, 0] = complex(math.inf, 0.0)
    assert near(wide, plain)
