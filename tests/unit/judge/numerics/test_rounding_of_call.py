"""Rounding of a call: errors of other orders, with enough draws for a single number."""

import math

import pytest
import torch

from benchmarks.numerics.judged_answers import AnswerTrials, set_up
from evaluator.findings import Code
from evaluator.judge.numerics.rounding_of_call import rounding_of_call
from evaluator.judge.numerics.single_accumulator import running
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.protocol import model_call
from evaluator.records import Precision, SizeName
from tests.unit.references import problem, reference

OPPOSITE = "(torch.rand(1) < 0.6) * 16 - 8 + torch.randn(8, 2048), torch.randn(8, 2048) - 8, torch.randn(8, 2048) - 8"
"""In six of ten draws both distances are about 724, their difference is about 1, and so is the loss."""
LOSS = problem("F.triplet_margin_loss(a, b, c, margin=1.0)", OPPOSITE, forward="a, b, c")
CALLS = 60


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


def findings(setup, answer, calls=CALLS):
    """Return the codes of calls with the values of `OPPOSITE`; None for a correct call."""
    trials = (AnswerTrials(setup, answer).run(0, seed, timeout_s=60, own_values=True) for seed in seeds(setup)[:calls])
    return [None if trial.fault is None else trial.fault.finding.code for trial in trials]


def seeds(setup):
    return [seed for seed in range(10 * CALLS) if setup.distribution_mix.pick(seed).value == "as_given"][:CALLS]


@pytest.mark.slow
def test_one_accumulator_for_each_row_of_a_loss_is_right_in_every_draw(setup):
    assert findings(setup, kernel) == [None] * CALLS


def test_an_error_far_beyond_one_accumulators_is_wrong(setup):
    def shifted(plan):
        return model_call.Result(kernel(plan).outputs + 0.03, None)

    assert findings(setup, shifted, 5) == [Code.WRONG_VALUES.value] * 5


@pytest.mark.parametrize(("output", "draws"), [("x.sum()", 8), ("x.sum(1)[:3]", 3), ("x.sum(1)", 2), ("x.argmax()", 2)])
def test_few_elements_have_more_draws(output, draws, monkeypatch):
    made = set_up(problem(output, "torch.rand(64, 128)"), SizeName.SMALL, "cpu").reference
    seen = []
    monkeypatch.setattr(
        "evaluator.judge.numerics.rounding_of_call.other_orders", lambda *_, **given: seen.append(given["draws"]) or {}
    )
    rounding_of_call(CallPlan(made, 7, random_seed=0))
    assert seen == [draws]


LONG = problem("torch.sigmoid(x).sum(1)", "torch.randn(4, 577600) * 0.3")
SKEWED = problem("F.mse_loss(a, b)", "torch.rand(32, 32768), torch.rand(32, 32768)", forward="a, b")


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
    "off by 4e-5": (off_by(4e-5), True, True),
    "off by 5e-4": (off_by(5e-4), False, False),
    "1e-3 left out": (shorter(1e-3), False, False),
    "5e-4 left out": (shorter(5e-4), False, False),
}


@pytest.mark.parametrize("case", [LONG, SKEWED], ids=["577600 sigmoids", "1048576 squares"])
@pytest.mark.slow
def test_a_long_sum_may_have_one_accumulator_and_leave_nothing_out(case):
    setup = set_up(case, SizeName.SMALL, "cpu")
    for name, (total, *is_right) in SUMS.items():

        def answer(plan, total=total):
            found = total(terms_of(plan))
            return model_call.Result(found if case is LONG else found[0] / 1_048_576, None)

        trials = [AnswerTrials(setup, answer).run(0, seed, timeout_s=60, own_values=True) for seed in seeds(setup)[:1]]
        assert [each.fault is None for each in trials] == [is_right[case is SKEWED]], name


GIVEN = "torch.randn(256, 512)"
LAYER = {"given": "torch.randn(32, 64)", "init": "self.linear = nn.Linear(64, 64)"}


def measured(output, given=GIVEN, **changes):
    return rounding_of_call(CallPlan(reference(output, given, **changes), 7, random_seed=0))


def test_a_value_on_the_other_side_of_a_step_is_a_step_off():
    """Steps of 0.01, beside a row's size of 1 and values of up to 4."""
    assert 0.002 < measured("torch.floor(x * 100) / 100")["output"] <= 0.0101


def test_a_sum_that_cancels_is_off_by_the_last_place_of_its_terms():
    """A unit in the last place of 1e5 is 1/128, and 2**-23 of it is 0.012."""
    assert 1 / 128 < measured("(x + 1e5) - 1e5")["output"] < 2 * 0.012 + 1 / 128


def test_a_number_is_measured_like_a_tensor_of_one_element():
    """Each of 131072 values is off by 1/16 or so of its size at random: their mean by 1e-4 of about 1e-3."""
    found = measured("(x, ((x + 1e6) - 1e6).mean().item())")
    assert found["output[0]"] == 0
    assert found["output[1]"] > 1e-3


def test_whole_numbers_are_the_same_or_others():
    assert measured("(x * 100).round().int()")["output"] == math.inf
    assert measured("x.argmax(1)")["output"] == 0


def test_operands_in_tf32_are_honest_where_the_problem_allows_them():
    """An operand is rounded by 2**-11, or cut off by 2**-10."""
    assert 3e-4 < measured("self.linear(x)", **LAYER, precision=Precision.TF32)["output"] < 5e-3
    assert measured("self.linear(x)", **LAYER)["output"] < 5e-6


@pytest.mark.parametrize(
    ("precision", "name", "eps"), [(Precision.BF16, "bfloat16", 2.0**-7), (Precision.FP16, "float16", 2.0**-10)]
)
def test_sums_of_half_precision_have_accumulators_in_fp32(precision, name, eps):
    """A result between two numbers may be the other one; partial sums in half precision are off by a whole unit."""
    found = measured("x.sum(1)", f"torch.rand(32, 4096).to(torch.{name})", precision=precision)["output"]
    assert found < eps / 16
