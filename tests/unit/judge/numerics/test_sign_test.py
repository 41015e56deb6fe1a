"""Each call in which a rounding is large has a voice of its own."""

import pytest
import torch

from evaluator.judge.numerics.reduced_precision import signs_agree


def draw(seed, calls, elements=1):
    return torch.randn(calls, elements, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("calls", "elements"), [(20, 1), (21, 1), (32, 1), (20, 7)])
def test_errors_that_have_the_rounding_in_them_go_with_it(calls, elements):
    rounding, exact = draw(1, calls, elements), 100 + draw(2, calls, elements)
    noise = draw(3, calls, elements)
    assert signs_agree(rounding, rounding, exact)
    assert signs_agree(rounding + 0.05 * noise, rounding, exact)
    assert signs_agree(0.5 * rounding + 3.0, rounding, exact)
    assert not signs_agree(-rounding, rounding, exact)
    assert not signs_agree(torch.zeros_like(rounding), rounding, exact)
    assert not signs_agree(rounding, torch.zeros_like(rounding), exact)


def test_other_errors_do_not_whatever_their_sizes():
    for seed in range(300):
        sizes = torch.exp(3 * draw(seed, 24))
        errors, rounding, exact = (draw(1000 * part + seed, 24) for part in (1, 2, 3))
        assert not signs_agree(errors * sizes, rounding * sizes, exact * sizes)
        assert not signs_agree(errors, rounding, exact)


def test_one_call_alone_is_not_enough():
    rounding = draw(1, 20)
    rounding[3] = 1e6
    for errors in (draw(2, 20), draw(3, 20)):
        errors[3] = 1e6
        assert not signs_agree(errors, rounding, torch.ones(20, 1, dtype=torch.float64))


def test_a_bias_and_a_factor_are_no_rounding():
    exact = torch.exp(draw(1, 24))
    rounding = 1e-3 * exact * (1 + 0.1 * draw(2, 24))
    for errors in (1e-3 * exact, torch.full_like(exact, 1e-3)):
        assert not signs_agree(errors + 1e-5 * draw(3, 24), rounding, exact)


def test_fewer_calls_and_what_is_not_finite_prove_nothing():
    rounding = draw(1, 20)
    assert not signs_agree(rounding[:15], rounding[:15], torch.ones(15, 1, dtype=torch.float64))
    broken = rounding.clone()
    broken[0] = torch.nan
    assert not signs_agree(rounding, broken, torch.zeros_like(rounding))
