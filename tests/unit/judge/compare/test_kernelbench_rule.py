"""KernelBench's rule is `torch.allclose` in the dtype of the output: NaN, infinities, integers, no elements."""

import math

import pytest
import torch

from evaluator.judge.compare import benchmark_rules
from evaluator.judge.compare.benchmark_rules import all_agree
from evaluator.judge.compare.limits import limit_of
from evaluator.judge.compare.tensor_comparison import Sides, compare
from evaluator.records import ToleranceRule
from tests.unit.references import problem

FLOATS = {torch.float32: 1e-4, torch.float64: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}
OTHERS = (torch.int64, torch.int32, torch.uint8, torch.bool)
SHAPES = ((), (1,), (0,), (3, 0), (7,), (5, 33), (2, 3, 4), (4, 1, 9))


def pairs(dtype):
    """Return outputs of many shapes beside the reference's, with errors on both sides of the tolerance."""
    generator = torch.Generator().manual_seed(20)
    for shape in SHAPES * 6:
        honest = (4 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)
        scale = float(torch.rand((), generator=generator)) * 2
        signs = torch.randint(-1, 2, shape, generator=generator)
        if dtype is torch.bool:
            yield honest ^ (signs > 0 if scale < 1 else False), honest
            continue
        error = scale * FLOATS.get(dtype, 0.5) * (1 + honest.double().abs()) * signs
        yield (honest.double() + error).to(dtype), honest


def decides(actual, honest):
    """Return the verdict of the deciding option, `--tolerance kernelbench`."""
    limit = limit_of(problem("x"), "output", honest, rule=ToleranceRule.KERNELBENCH)
    check = compare("output", Sides(actual, honest, honest), limit)
    assert not check.ok or (check.error_ratio or 0.0) <= 1
    return check.ok


@pytest.mark.parametrize("dtype", [*FLOATS, *OTHERS], ids=str)
def test_the_rule_is_allclose(dtype):
    tolerance = FLOATS.get(dtype, 1e-4)
    found = []
    for actual, honest in pairs(dtype):
        found.append(torch.allclose(honest, actual, rtol=tolerance, atol=tolerance))
        assert bool(all_agree(actual, honest)) is decides(actual, honest) is found[-1]
    assert {*found} == {True, False}


@pytest.mark.parametrize("given", [math.nan, math.inf, -math.inf, 1.0])
@pytest.mark.parametrize("expected", [math.nan, math.inf, -math.inf, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_nan_agrees_with_nothing_and_an_infinity_with_itself(given, expected, dtype):
    actual, honest = torch.ones(2, 5, 9).to(dtype), torch.ones(2, 5, 9).to(dtype)
    actual[1, 2, 3], honest[1, 2, 3] = given, expected
    agreed = given == expected
    assert bool(all_agree(actual, honest)) is decides(actual, honest) is agreed
    assert bool(all_agree(actual, honest, [(1, 2)])) is True
    assert bool(all_agree(actual, honest, [(1, 3), (0, 0)])) is agreed


def test_the_relative_tolerance_is_of_the_submissions_value():
    honest = torch.tensor([1e6], dtype=torch.float64)
    assert decides(honest + 100.005, honest)
    assert not decides(honest - 100.005, honest)


def test_what_rounding_to_the_dtype_accepts_is_no_contradiction():
    """In bf16 the error and the allowed error are rounded: some accepted errors exceed the allowed one in float64."""
    honest, actual = torch.tensor([[0.00787353515625], [0.01806640625]]).bfloat16()
    assert (actual.double() - honest.double()).item() > 1e-2 + 1e-2 * actual.double().item()
    assert torch.allclose(honest, actual, rtol=1e-2, atol=1e-2)
    assert decides(actual, honest)


def test_an_index_agrees_with_its_neighbour_if_it_is_large():
    places = torch.arange(20_000, 20_004)
    assert decides(places + 1, places)
    assert not decides(places[:2] - 19_999, places[:2] - 20_000)


def test_fp8_and_complex_numbers_have_the_tolerance_of_fp32():
    codes = torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn)
    assert bool(all_agree(codes, codes))
    assert not bool(all_agree(codes, codes[:1].expand(2)))
    assert bool(all_agree(torch.ones(3, dtype=torch.complex64) + 1e-4j, torch.ones(3, dtype=torch.complex64)))


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("piece", [1, 40, 1 << 22])
def test_pieces_and_slices_along_any_dimension(monkeypatch, dim, piece):
    monkeypatch.setattr(benchmark_rules, "_PIECE", piece)
    honest = torch.zeros(3, 50, 4)
    for index in (0, honest.shape[dim] - 1):
        actual = honest.clone()
        actual.select(dim, index).fill_(1)
        assert not bool(all_agree(actual, honest))
        assert not bool(all_agree(actual, honest, [(dim, index - 1), (dim, index + 1)]))
        assert bool(all_agree(actual, honest, [(dim, index)]))
        assert bool(all_agree(actual.transpose(0, 1), honest.transpose(0, 1), [({0: 1, 1: 0}.get(dim, dim), index)]))
