"""SOL-ExecBench's and FlashInfer-Bench's rules: shares, caps, infinities, zeros, pieces and slices apart."""

import math

import pytest
import torch

from evaluator.judge.compare import benchmark_rules
from evaluator.judge.compare.benchmark_rules import compared, fault
from evaluator.records import MatchedRatio

TIGHT = MatchedRatio(max_atol=0.1, max_rtol=0.0, required_matched_ratio=0.9)


def accepts(actual, honest, rule=TIGHT, apart=()):
    return fault([compared(torch.as_tensor(actual), torch.as_tensor(honest), apart, rule)], rule) is None


def off(count, error=1.0, of=100):
    values = torch.ones(of)
    values[:count] += error
    return values


def test_a_share_of_the_elements_may_be_off():
    honest = torch.ones(100)
    assert accepts(off(10), honest)
    assert not accepts(off(11), honest)
    assert accepts(off(100, 0.09), honest)
    assert not accepts(off(100, 0.11), honest)
    assert accepts(off(100, 0.11), honest, MatchedRatio(max_atol=0.1, max_rtol=0.02))


def test_a_cap_holds_for_every_element():
    rule = MatchedRatio(max_atol=0.1, max_rtol=0.0, required_matched_ratio=0.9, max_error_cap=0.5)
    assert accepts(off(5, 0.4), torch.ones(100), rule)
    assert not accepts(off(1, 0.6), torch.ones(100), rule)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_fail_even_where_the_reference_has_them(value):
    honest, given = torch.ones(100), torch.ones(100)
    honest[3] = given[3] = value
    assert not accepts(given, honest)
    assert not accepts(torch.ones(100), honest)
    allowed = MatchedRatio(allow_negative_inf=True)
    assert accepts(given, honest, allowed) is (value == -math.inf)
    assert not accepts(torch.ones(100), honest, allowed)
    assert accepts(given, honest, TIGHT, [(0, 3)])


def test_zeros_alone_fail():
    honest = torch.zeros(100)
    assert accepts(torch.zeros(100), honest)
    honest[0] = 0.01
    assert not accepts(torch.zeros(100), honest)
    assert accepts(torch.full((100,), 0.01), honest)


def test_flashinfer_accepts_by_either_number():
    rule = MatchedRatio(max_atol=0.1, max_rtol=0.1, required_matched_ratio=1.0, either=True)
    assert accepts([100.0, 0.001], [109.0, 0.05], rule)
    assert not accepts([100.0], [112.0], rule)
    assert not accepts([100.0], [112.0], MatchedRatio(required_matched_ratio=1.0))


def test_other_dtypes_and_shapes():
    codes = torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn)
    assert accepts(codes, codes)
    assert not accepts(codes, codes[:1].expand(2))
    assert accepts(torch.arange(5), torch.arange(5))
    assert accepts(torch.tensor(True), torch.tensor(True))
    assert not accepts(torch.tensor(False), torch.tensor(True))
    assert accepts(torch.empty(0, 3), torch.empty(0, 3))
    assert accepts(torch.tensor(1.05), torch.tensor(1.0))


@pytest.mark.parametrize("piece", [1, 40, 1 << 22])
def test_pieces_and_blocks_count_together(monkeypatch, piece):
    monkeypatch.setattr(benchmark_rules, "_PIECE", piece)
    honest, given = torch.ones(10, 10), torch.ones(10, 10)
    given[:3, :3] = 3
    assert accepts(given, honest)
    blocks = [compared(*pair, (), TIGHT) for pair in zip(given.split(3), honest.split(3), strict=True)]
    assert fault(blocks, TIGHT) is None
    given[9, 8:] = 3
    assert not accepts(given, honest)
    assert accepts(given, honest, TIGHT, [(0, 9)])
    assert not accepts(given, honest, TIGHT, [(1, 9)])
