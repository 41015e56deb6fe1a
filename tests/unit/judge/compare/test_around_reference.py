"""Bounds around the plain reference imply the tolerance around the exact value, for every error of the reference."""

import math

import pytest
import torch
from msgspec.structs import replace

from evaluator.judge.compare.tensor_comparison import Sides, compare
from evaluator.judge.compare.tolerance import around_reference, bounds, without_sums
from evaluator.records import ToleranceOverride, ToleranceRule
from tests.unit.judge.compare.test_tensor_comparison import problem

DRAWS = 150
SHAPES = ((6, 40), (3, 5, 7), (64,), (9,), (1, 30), (8, 1), (2, 200))
DTYPES = (torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16)


def limit_of(dtype, *, elementwise=False):
    limit = bounds(ToleranceRule.MEASURED, problem(), dtype)
    return without_sums(limit, problem(), dtype, 0.0) if elementwise else limit


def exact_values(draw, shape):
    """Rows of sizes that differ by decades, with zeros, and now and then with NaN and infinity."""
    exact = torch.randn(shape, dtype=torch.float64, generator=draw)
    exact *= 10 ** (6 * torch.rand((*shape[:-1], 1), dtype=torch.float64, generator=draw) - 3)
    exact[torch.rand(shape, generator=draw) < 0.1] = 0.0
    if torch.rand((), generator=draw) < 0.2:
        exact.view(-1)[0] = math.inf
        exact.view(-1)[-1] = math.nan
    return exact


@pytest.mark.parametrize("seed", range(DRAWS))
def test_what_is_near_the_plain_reference_is_within_the_tolerance(seed):
    draw = torch.Generator().manual_seed(seed)
    dtype, shape = DTYPES[seed % len(DTYPES)], SHAPES[seed % len(SHAPES)]
    limit = limit_of(dtype, elementwise=seed % 3 == 0)
    exact = exact_values(draw, shape)
    size = torch.nan_to_num(exact, 0.0, 0.0, 0.0).square().mean(-1, keepdim=True).sqrt()
    for honest_error in (0.0, limit.floor / limit.multiple, limit.floor, 10 * limit.floor, 0.3):
        noise = torch.randn(shape, dtype=torch.float64, generator=draw) * honest_error
        flipped = torch.rand(shape, generator=draw) < 0.02
        honest = (exact + size * torch.where(flipped, 30 * noise, noise)).to(dtype)
        sides = torch.where(torch.rand(shape, generator=draw) < 0.5, -1, 1)
        wide = honest.double()
        scale = torch.maximum(torch.nan_to_num(wide, 0.0, 0.0, 0.0).square().mean(-1, keepdim=True).sqrt(), wide.abs())
        for part in (0.5, 0.69, 0.74, 1.5):
            actual = (wide + sides * part * limit.floor * torch.nan_to_num(scale, 0.0, 0.0, 0.0)).to(dtype)
            if compare("output", Sides(actual, honest, honest), around_reference(limit)).ok:
                assert compare("output", Sides(actual, exact, honest), limit).ok


def test_the_bounds_admit_another_order_of_summation_and_refuse_what_the_floor_barely_admits():
    exact = torch.randn(8, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    honest, limit = exact.float(), limit_of(torch.float32)
    scale = torch.maximum(exact.square().mean(1, keepdim=True).sqrt(), exact.abs())
    near, far = (honest + (part * limit.floor * scale).float() for part in (0.6, 0.9))
    assert compare("output", Sides(near, honest, honest), around_reference(limit)).ok
    assert compare("output", Sides(far, exact, honest), limit).ok
    assert not compare("output", Sides(far, honest, honest), around_reference(limit)).ok


@pytest.mark.parametrize("override", [ToleranceOverride(multiple=1.0), ToleranceOverride(floor=0.5)])
def test_some_tolerances_are_implied_by_nothing(override):
    limit = bounds(ToleranceRule.MEASURED, replace(problem(), tolerance=override), torch.float32)
    assert around_reference(limit) is None


def test_neither_fill_values_nor_kernelbenchs_rule_have_such_bounds():
    assert around_reference(limit_of(torch.float32)._replace(fill=1e9)) is None
    assert around_reference(bounds(ToleranceRule.KERNELBENCH, problem(), torch.float32)) is None
