"""Rounding of a call: a single number has enough draws to measure an honest error."""

import pytest
import torch

from benchmarks.numerics.judged_answers import AnswerTrials, set_up
from evaluator.findings import Code
from evaluator.judge.numerics.rounding_of_call import rounding_of_call
from evaluator.judge.numerics.single_accumulator import running
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.protocol import model_call
from evaluator.records import SizeName
from tests.unit.references import problem

OPPOSITE = "(torch.rand(1) < 0.6) * 16 - 8 + torch.randn(8, 2048), torch.randn(8, 2048) - 8, torch.randn(8, 2048) - 8"
"""In six of ten draws both distances are about 724, their difference is about 1, and so is the loss."""
LOSS = problem("F.triplet_margin_loss(a, b, c, margin=1.0)", OPPOSITE, forward="a, b, c")
CALLS = 120


def distance(x):
    """Return the length of rows with one fused accumulator in fp32, from the first to the last element."""
    total = torch.zeros(len(x), dtype=torch.float32)
    for square in x.double().square().unbind(1):
        total = (total.double() + square).float()
    return total.sqrt()


def kernel(plan):
    a, b, c = plan.inputs.args
    return model_call.Result((1 + distance(a - b) - distance(a - c)).clamp(min=0).mean(), None)


@pytest.fixture(scope="module")
def setup():
    return set_up(LOSS, SizeName.SMALL, "cpu")


def findings(setup, answer):
    """Return the codes of calls with the values of `OPPOSITE`; None for a correct call."""
    trials = (AnswerTrials(setup, answer).run(0, seed, timeout_s=60, own_values=True) for seed in seeds(setup))
    return [None if trial.fault is None else trial.fault.finding.code for trial in trials]


def seeds(setup):
    return [seed for seed in range(10 * CALLS) if setup.distribution_mix.pick(seed).value == "as_given"][:CALLS]


def test_one_accumulator_for_each_row_of_a_loss_is_right_in_every_draw(setup):
    assert findings(setup, kernel) == [None] * CALLS


def test_an_error_far_beyond_one_accumulators_is_wrong(setup):
    def shifted(plan):
        return model_call.Result(kernel(plan).outputs + 0.03, None)

    assert findings(setup, shifted)[:5] == [Code.WRONG_VALUES.value] * 5


@pytest.mark.parametrize(("output", "draws"), [("x.sum()", 8), ("x.sum(1)[:3]", 3), ("x.sum(1)", 1), ("x.argmax()", 1)])
def test_few_elements_have_more_draws(output, draws, monkeypatch):
    made = set_up(problem(output, "torch.rand(64, 128)"), SizeName.SMALL, "cpu").reference
    seen = []
    monkeypatch.setattr(
        "evaluator.judge.numerics.rounding_of_call.other_orders", lambda *_, **given: seen.append(given["draws"]) or {}
    )
    rounding_of_call(CallPlan(made, 7, random_seed=0))
    assert seen == [draws]


LONG = problem("torch.sigmoid(x).sum(1)", "torch.randn(16, 577600) * 0.3")
SKEWED = problem("F.mse_loss(a, b)", "torch.rand(32, 32768), torch.rand(32, 32768)", forward="a, b")
PUBLISHED = 5.3e-5
"""Relative error of a published kernel that adds 577,600 sigmoids to one address by `atomicAdd`, in one of 128 rows."""


def terms_of(plan):
    """Return the terms of each sum."""
    given = plan.inputs.args
    return torch.sigmoid(given[0]) if len(given) == 1 else (given[0] - given[1]).square().reshape(1, -1)


def in_order(terms):
    return running(terms)[:, -1]


def off_by(part):
    return lambda terms: (terms.double().sum(1) * (1 + part)).float()


def shorter(part):
    return lambda terms: terms[:, : int(terms.shape[1] * (1 - part))].sum(1)


SUMS = {
    "in order": (in_order, True, False),  # Squares have a bias.
    "off as published": (off_by(PUBLISHED), True, True),
    "off by 5e-4": (off_by(5e-4), False, False),
    "1e-3 left out": (shorter(1e-3), False, False),
    "5e-4 left out": (shorter(5e-4), False, False),
}


@pytest.mark.parametrize("case", [LONG, SKEWED], ids=["577600 sigmoids", "1048576 squares"])
def test_a_long_sum_may_be_added_to_one_address_and_leave_nothing_out(case):
    setup = set_up(case, SizeName.SMALL, "cpu")
    for name, (total, *is_right) in SUMS.items():

        def answer(plan, total=total):
            found = total(terms_of(plan))
            return model_call.Result(found if case is LONG else found[0] / 1_048_576, None)

        trials = [AnswerTrials(setup, answer).run(0, seed, timeout_s=60, own_values=True) for seed in seeds(setup)[:3]]
        assert [each.fault is None for each in trials] == [is_right[case is SKEWED]] * 3, name


def test_a_lack_of_memory_for_exponentials_leaves_the_errors_of_other_orders(monkeypatch):
    plan = CallPlan(set_up(problem("x.exp().sum(1)", "torch.rand(64, 128)"), SizeName.SMALL, "cpu").reference, 7)

    def exhausted(*_):
        raise MemoryError

    whole = rounding_of_call(plan)["output"]
    monkeypatch.setattr("evaluator.judge.numerics.rounding_of_call.units_of_exponentials", exhausted)
    found = rounding_of_call(plan)["output"]
    assert found.unit == 0
    assert found.usual == pytest.approx(whole.usual, rel=0.5)
    assert found.usual > 0
