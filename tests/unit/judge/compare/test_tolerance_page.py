"""The numbers of docs/tolerance.md, computed."""

import math
import re
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from evaluator.judge.compare.tensor_comparison import LEVELS, STEP, Sides, compare
from evaluator.judge.compare.tolerance import WIDEST, Rounding, bounds, without_sums
from evaluator.judge.numerics.single_accumulator import LONGEST, LONGEST_ATOMIC, rounding
from evaluator.records import Precision, ToleranceRule
from tests.unit.judge.compare.test_tensor_comparison import problem

PAGE = (Path(__file__).parents[4] / "docs/tolerance.md").read_text(encoding="utf-8")
EXACT = torch.tensor([[3.0, 4.0, 0.0, 0.0], [0.01, 0.0, 0.0, 0.0]], dtype=torch.float64)
PLACES = {"4": (0, 1), "0 in the first row": (0, 2), "0.01": (1, 0)}
OUTPUTS = {
    "fp32": (Precision.FP32, torch.float32),
    'fp32 with `precision = "tf32"`': (Precision.TF32, torch.float32),
    "bf16": (Precision.BF16, torch.bfloat16),
    "fp16": (Precision.FP16, torch.float16),
    "fp64": (Precision.FP32, torch.float64),
}


def cells(first):
    """Return the cells of the page's row that begins with `first`."""
    row = re.search(rf"^\| {re.escape(first)} \| (.*) \|$", PAGE, re.MULTILINE)
    return [cell.strip() for cell in row[1].split("|")]


def allowed(place, rule, honest_error):
    """Return the largest error that passes at `place`, from the ratio of a known error."""
    honest = EXACT.float()
    honest[0, 3] += honest_error
    actual = honest.clone()
    actual[place] += 1.0
    check = compare("output", Sides(actual, EXACT, honest), bounds(rule, problem(), torch.float32))
    return float(abs(actual[place].double() - EXACT[place])) / check.error_ratio


@pytest.mark.parametrize("element", PLACES)
def test_the_example(element):
    rules = [(ToleranceRule.MEASURED, 0.0), (ToleranceRule.MEASURED, 1e-4), (ToleranceRule.KERNELBENCH, 0.0)]
    found = [f"{allowed(PLACES[element], *rule):.2e}" for rule in rules]
    assert cells(element) == found


@pytest.mark.parametrize("output", OUTPUTS)
def test_the_constants(output):
    precision, dtype = OUTPUTS[output]
    limit = bounds(ToleranceRule.MEASURED, replace(problem(), precision=precision), dtype)
    floor, ulps, _ = cells(output)
    powers = {"2⁻⁶": 2.0**-6, "2⁻⁹": 2.0**-9}
    assert limit.floor == (powers[floor] if floor in powers else float(floor))
    assert limit.unit == int(ulps) * torch.finfo(dtype).eps


def test_the_floor_of_elementwise_maps():
    usual = bounds(ToleranceRule.MEASURED, problem(), torch.float32)
    found = without_sums(usual, problem(), torch.float32, Rounding()).floor
    assert found < usual.floor
    assert f"**Elementwise maps** in fp32 have a floor of {found:.0e}".replace("e-05", "e-5") in PAGE


def test_the_levels_of_large_errors():
    said = f"level = max({WIDEST:.0f} * constant, floor) * {STEP:.0f}^k"
    assert said in PAGE.replace("\N{MULTIPLICATION SIGN}", "*")
    assert f"k = 0 … {LEVELS - 1}" in PAGE
    usual = bounds(ToleranceRule.MEASURED, problem(), torch.float32)
    wide = bounds(ToleranceRule.MEASURED, problem(), torch.float32, Rounding(usual=1e-3))
    elementwise = without_sums(usual, problem(), torch.float32, Rounding())
    assert [each.counted_from[0] for each in (usual, wide, elementwise)] == [WIDEST * 5e-5, wide.floor, WIDEST * 5e-5]
    assert wide.floor == 4e-3
    assert usual.counted_from[1] == usual.counted_from[0] / 4


def test_the_error_of_one_accumulator():
    unit = torch.ones(100_000, dtype=torch.float64)
    drawn = rounding(unit, unit, LONGEST, torch.Generator().manual_seed(0))
    said = re.search(r"result, or (\S+) over ([\d,]+) terms, the\s+longest\s+accumulator considered", PAGE)
    assert said[2] == f"{LONGEST:,}"
    assert f"A sum of up to {LONGEST_ATOMIC:,}" in " ".join(PAGE.split())
    assert math.isclose(float(drawn.std()), float(said[1]), rel_tol=0.01)
