"""The numbers of the tolerance, for each precision and dtype."""

import pytest
import torch
from msgspec.structs import replace

from evaluator.judge.compare.error_tally import LEVELS, STEP
from evaluator.judge.compare.tolerance import bounds, without_sums
from evaluator.judge.numerics.single_accumulator import LONGEST, rounding
from evaluator.records import Precision, ToleranceOverride, ToleranceRule
from tests.unit.judge.compare.test_tensor_comparison import problem

OUTPUTS = {
    "fp32": (Precision.FP32, torch.float32, 5e-5, 4, 2.0**-24, 16 * 5e-5),
    "fp32 with TF32": (Precision.TF32, torch.float32, 2e-3, 4, 2.0**-24, 16 * 2e-3),
    "bf16": (Precision.BF16, torch.bfloat16, 2.0**-10, 2, 2.0**-8, 2.0**-4),
    "fp16": (Precision.FP16, torch.float16, 2.0**-13, 2, 2.0**-11, 2.0**-7),
    "bf16 of a problem in fp32": (Precision.FP32, torch.bfloat16, 2.0**-10, 2, 2.0**-8, 2.0**-4),
    "fp64": (Precision.FP32, torch.float64, 1e-12, 4, 2.0**-53, 16e-12),
}


@pytest.mark.parametrize(("precision", "dtype", "floor", "multiple", "unit", "far"), OUTPUTS.values(), ids=OUTPUTS)
def test_the_constants(precision, dtype, floor, multiple, unit, far):
    limit = bounds(ToleranceRule.MEASURED, replace(problem(), precision=precision), dtype)
    assert (limit.floor, limit.multiple, limit.unit, limit.far) == (floor, multiple, unit, far)
    assert limit.counted_from == (far, far / multiple)


@pytest.mark.parametrize(("dtype", "multiple"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_measured_rounding_counts_as_an_error_of_the_reference(dtype, multiple):
    limit = bounds(ToleranceRule.MEASURED, problem(), dtype, rounding=1e-2)
    assert limit.floor == multiple * 1e-2
    usual = bounds(ToleranceRule.MEASURED, problem(), dtype)
    assert bounds(ToleranceRule.MEASURED, problem(), dtype, rounding=1e-8) == usual


def test_an_author_has_a_floor_and_a_multiple():
    made = replace(problem(), tolerance=ToleranceOverride(multiple=3.0, floor=1e-3))
    limit = bounds(ToleranceRule.MEASURED, made, torch.bfloat16, rounding=1e-2)
    assert (limit.multiple, limit.floor) == (3.0, 3e-2)
    assert bounds(ToleranceRule.MEASURED, made, torch.float32).floor == 1e-3


def test_elementwise_maps_in_fp32_have_a_smaller_floor_and_as_large_errors_are_far():
    usual = bounds(ToleranceRule.MEASURED, problem(), torch.float32)
    found = without_sums(usual, problem(), torch.float32, 0.0)
    assert (found.floor, found.far) == (1e-5, usual.far)


def test_far_errors_begin_at_the_tolerance_where_it_is_wide():
    wide = bounds(ToleranceRule.MEASURED, problem(), torch.float32, rounding=1e-3)
    assert wide.counted_from == (4e-3, 1e-3)
    assert (LEVELS, STEP) == (8, 4.0)


def test_the_longest_accumulator_is_off_by_1e_5_of_a_sum_of_equal_terms():
    """A random walk of n roundings of growing partial sums: 0.204 x 2**-23 x sqrt(n / 3)."""
    unit = torch.ones(100_000, dtype=torch.float64)
    drawn = rounding(unit, unit * 0, LONGEST, torch.Generator().manual_seed(0))
    assert float(drawn.std()) == pytest.approx(0.204 * 2.0**-23 * (2.0**20 / 3) ** 0.5, rel=0.01)
