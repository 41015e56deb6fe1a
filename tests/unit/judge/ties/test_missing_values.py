"""Answers without a value, where the tolerance has room for steps."""

import pytest
import torch

from benchmarks.numerics.judged_answers import set_up
from evaluator.findings import Code
from evaluator.judge.compare.tensor_comparison import Sides, compare
from evaluator.judge.compare.tolerance import Rounding, bounds
from evaluator.judge.ties import missing_values
from evaluator.judge.ties.missing_values import with_all_values
from evaluator.judge.ties.seen_elements import Seen
from evaluator.records import SizeName, ToleranceRule
from tests.unit.judge.ties.test_search import called, trials_of
from tests.unit.references import problem

SMALL = SizeName.SMALL
NORMAL, WHOLE = "torch.randn(24, 512)", "torch.randint(0, 2000, (128, 512)).float()"
FORGED = {
    "a mask of maxima": ("x * (x >= x.amax(1, keepdim=True) * 0.9999999)", NORMAL, torch.zeros_like),
    "no maxima": ("torch.where(x >= x.amax(1, keepdim=True) * 0.9999999, 0.0, x)", NORMAL, lambda x: x),
    "> for >=": ("torch.where(x * 1e-3 >= 0.5, x, 0.0)", WHOLE, lambda x: torch.where(x * 1e-3 > 0.5, x, 0.0)),
}


@pytest.mark.parametrize(("output", "given", "answer"), FORGED.values(), ids=FORGED)
def test_answers_without_a_value_are_wrong_despite_rare_steps(output, given, answer):
    setup = set_up(problem(output, given), SMALL, "cpu")
    assert setup.distribution_mix.rare
    found = called(trials_of(setup, lambda plan: answer(plan.inputs.args[0])), setup, 3)
    assert [trial.fault.finding.code for trial in found] == [Code.WRONG_VALUES.value] * 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("threshold", [2.22, 11.88])
def test_the_values_of_either_reference_are_right(threshold, dtype):
    """On this lattice, fp32 and float64 differ in all elements of a value."""
    setup = set_up(problem(f"torch.where(x * 0.01 + 0.1 >= {threshold}, x, 0.0)", WHOLE), SMALL, "cpu")

    def own(plan):
        x = plan.inputs.args[0].to(dtype)
        values = torch.where(x * 0.01 + 0.1 >= threshold, x, 0.0).float()
        values[0, 0] += 100  # A step elsewhere.
        return values

    found = called(trials_of(setup, own), setup, 3)
    assert [trial.fault for trial in found] == [None] * 3


def test_an_output_of_rounding_alone_may_lack_a_value():
    """Of such outputs no answer is proven right (C426)."""
    cosines = "(n := F.normalize(x, dim=1)) @ n.T"
    setup = set_up(problem(f"torch.where((s := {cosines}) > 1 - 1e-6, 0.0, s)", "torch.randn(24, 512)"), SMALL, "cpu")
    assert setup.distribution_mix.rare

    def unmasked(plan):
        n = torch.nn.functional.normalize(plan.inputs.args[0], dim=1)
        return n @ n.T

    assert [trial.fault for trial in called(trials_of(setup, unmasked), setup, 3)] == [None] * 3


def checked(actual, exact, honest=None):
    """Compare with a tolerance that has room for steps of 16 times a row's size, which alone accepts the answer."""
    of = problem("x", "torch.randn(64, 64)")
    limit = bounds(ToleranceRule.MEASURED, of, torch.float32, Rounding(usual=0.0, rare=4.0))
    sides = Sides(actual, exact.double(), exact if honest is None else honest)
    found = compare("output", sides, limit)
    assert found.ok
    return with_all_values(lambda: found, sides, limit)


def test_the_first_missing_element_is_told():
    exact = torch.where(torch.rand(64, 64, generator=torch.Generator().manual_seed(0)) < 0.004, 1.0, 0.0)
    found = checked(torch.zeros(64, 64), exact)
    assert (found.ok, found.mismatches) == (False, int(exact.sum()))
    assert found.first_mismatch.index == exact.nonzero()[0].tolist()
    assert (found.first_mismatch.expected, found.first_mismatch.actual) == ("1.0", "0.0")
    step = exact.clone()
    step[tuple(exact.nonzero()[3])] = 0.0
    assert not checked(torch.zeros(64, 64), exact, honest=step).ok


def test_a_few_steps_and_small_errors_are_right():
    exact = (torch.arange(4096).view(64, 64) % 8).float()
    few = exact.clone()
    few[3, :3] += 1
    assert checked(few, exact).ok
    assert checked(exact * (1 + 1e-6), exact).ok


def test_without_memory_on_the_gpu_the_values_are_checked_on_the_cpu(monkeypatch):
    seen = []

    def without_memory_at_first(*given):
        seen.append(given)
        if len(seen) == 1:
            raise torch.OutOfMemoryError
        return Seen(*given)

    monkeypatch.setattr(missing_values, "Seen", without_memory_at_first)
    exact = torch.where(torch.arange(4096).view(64, 64) % 400 == 0, 1.0, 0.0)
    assert not checked(torch.zeros(64, 64), exact).ok
    assert len(seen) == 2
