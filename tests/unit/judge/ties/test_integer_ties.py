"""Integers and booleans at ties: honest roundings pass, every other difference is wrong."""

import pytest
import torch

from benchmarks.numerics.judged_answers import AnswerTrials, set_up
from evaluator.findings import Code
from evaluator.judge.numerics.arithmetic_modes import Format, rounded
from evaluator.protocol import model_call
from evaluator.records import Profile, SizeName, ToleranceRule
from tests.unit.references import problem

GREY = problem(
    "((0.299 * x[:, 0] + 0.587 * x[:, 1] + 0.114 * x[:, 2]) * 255).round().to(torch.uint8)",
    "torch.rand(16, 3, 128, 128)",
)
FACTORS = "torch.randn(64, 256), torch.randn(256, 256)"
WHOLE = problem("(x @ w * 64).round().to(torch.int32)", FACTORS, forward="x, w")
SIGNS = problem("(x @ w) > 0", FACTORS, forward="x, w")
FIRST = problem("x.argmax(1)", "torch.randint(0, 8, (64, 96)) + 0.5")
TENTHS = "(torch.randn(256, 8) * 2).round() / 10, (torch.randn(32, 8) * 2).round() / 10"
"""Points at equal distances from two centres, but for the rounding of a tenth."""
NEAREST = problem("(x[:, None] - c).square().sum(2).argmin(1)", TENTHS, forward="x, c")
CALLS = 12
"""Honest answers differ from both references: of `GREY` in one call of two, of the others in nearly each call."""


def grey(plan):
    """Return grey values with 255 in the coefficients, and fused multiply-adds: one rounding of each sum."""
    x = plan.inputs.args[0].double()
    value = (76.245 * x[:, 0]).float()
    for channel, factor in ((1, 149.685), (2, 29.07)):
        value = (value.double() + factor * x[:, channel]).float()
    return value.round().to(torch.uint8)


def in_turn(plan):
    """Return whole numbers of a product with one accumulator for each sum, from the last term to the first."""
    x, w = plan.inputs.args
    total = torch.zeros(len(x), w.shape[1])
    for column, row in zip(x.T.flip(0), w.flip(0), strict=True):
        total = torch.addcmul(total, column[:, None], row)
    return (total * 64).round().to(torch.int32)


def nearest(plan):
    """Return the nearest centre by the expanded square of the distance."""
    x, c = plan.inputs.args
    return ((x * x).sum(1, keepdim=True) - 2 * x @ c.T + (c * c).sum(1)).argmin(1)


def trials_of(setup, answer, rule=ToleranceRule.MEASURED):
    return AnswerTrials(setup, lambda plan: model_call.Result(answer(plan), None), rule)


def called(trials, setup, calls):
    """Make calls with the problem's own values."""
    seeds = [seed for seed in range(20 * calls) if setup.distribution_mix.pick(seed) is Profile.AS_GIVEN][:calls]
    return [trials.run(0, seed, timeout_s=60, own_values=True) for seed in seeds]


def codes(of, answer, rule=ToleranceRule.MEASURED, calls=3):
    """Return the codes of calls; None for a correct call."""
    setup = set_up(of, SizeName.SMALL, "cpu")
    found = called(trials_of(setup, answer, rule), setup, calls)
    return [None if trial.fault is None else trial.fault.finding.code for trial in found]


def at_ties(trials):
    """Return the comparisons of answers that differ from both references."""
    return [tensor for trial in trials for tensor in trial.check.tensors if tensor.error_ratio]


def plain(plan):
    """Return the reference's own output."""
    return plan.reference.values(plan.whole.result)["output"]


@pytest.mark.parametrize(("of", "answer"), [(GREY, grey), (WHOLE, in_turn), (NEAREST, nearest)])
def test_honest_roundings_at_ties_are_right(of, answer):
    assert codes(of, answer, calls=CALLS) == [None] * CALLS


@pytest.mark.parametrize(("of", "answer"), [(GREY, grey), (WHOLE, in_turn), (NEAREST, nearest)])
def test_honest_answers_do_differ_at_ties(of, answer):
    assert Code.WRONG_VALUES.value in codes(of, answer, ToleranceRule.KERNELBENCH, CALLS)
    setup = set_up(of, SizeName.SMALL, "cpu")
    found = at_ties(called(trials_of(setup, answer), setup, CALLS))
    assert found
    assert {(each.ok, each.error_ratio, each.mismatches) for each in found} == {(True, 1.0, 0)}
    assert min(each.max_abs_error for each in found) >= 1


@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize(("of", "answer"), [(GREY, grey), (WHOLE, in_turn)])
def test_a_single_wrong_element_elsewhere_is_wrong(of, answer, place):
    def wrong(plan):
        values = answer(plan)
        flat = values.view(-1)
        flat[place] += 1
        return values

    assert codes(of, wrong) == [Code.WRONG_VALUES.value] * 3


def test_a_code_beyond_the_seen_ones_is_wrong_at_a_tie():
    def two_off(plan):
        own, values = plain(plan).int(), grey(plan).int()
        return (own + 2 * (values - own)).to(torch.uint8)

    assert Code.WRONG_VALUES.value in codes(GREY, two_off, calls=CALLS)


def test_tf32_changes_more_signs_than_roundings_do():
    def cut_off(plan):
        x, w = (rounded(each, Format.TF32_CUT) for each in plan.inputs.args)
        return (x @ w) > 0

    assert codes(SIGNS, cut_off) == [Code.WRONG_VALUES.value] * 3


def test_of_equal_inputs_the_first_one_counts():
    def last(plan):
        x = plan.inputs.args[0]
        return x.shape[1] - 1 - x.flip(1).argmax(1)

    assert codes(FIRST, last) == [Code.WRONG_VALUES.value] * 3


def test_a_reference_in_blocks_has_the_same_ties():
    setup = set_up(GREY, SizeName.SMALL, "cpu")
    inputs = setup.reference.draw(1)
    setup.reference.split_rows(inputs, setup.reference.forward(inputs, 0), 4)
    assert len(setup.reference.blocks(inputs)) == 4
    found = called(trials_of(setup, grey), setup, CALLS)
    assert [trial.fault for trial in found] == [None] * CALLS
    assert at_ties(found)


def test_an_output_that_roundings_decide_proves_nothing():
    setup = set_up(problem("(x + 1 - x - 1) > 0", "torch.rand(64, 64) * 4096 + 0.3"), SizeName.SMALL, "cpu")

    def some_changed(plan):
        return plain(plan) ^ (torch.rand(64, 64, generator=torch.Generator().manual_seed(plan.seed)) < 0.05)

    trials = trials_of(setup, some_changed)
    assert [trial.fault for trial in called(trials, setup, 2)] == [None] * 2
    assert trials.unproven().finding.code == Code.ROUNDING_DECIDES.value
