"""Choices among equal values: a kernel that takes the lowest place is right, one that takes a place twice is wrong."""

import pytest
import torch

from benchmarks.numerics.judged_answers import AnswerTrials, set_up
from evaluator.findings import Code
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.setup.equal_values import TieBreak, choosing, has_choice
from evaluator.protocol import model_call
from evaluator.records import Profile, SizeName, ToleranceRule
from tests.unit.references import problem, reference

NAN = float("nan")
ROUTER = problem("(p := x.bfloat16().float()).topk(2, 1)", "torch.randn(256, 64)")
CALLS = 3


def lowest(plan):
    """Return two maxima of each row in turn, the lowest place first."""
    values = plan.inputs.args[0].bfloat16().float()
    found = []
    for _ in range(2):
        places = values.argmax(1, keepdim=True)
        found.append((values.gather(1, places), places))
        values = values.scatter(1, places, -torch.inf)
    return tuple(torch.cat(each, 1) for each in zip(*found, strict=True))


def highest(plan):
    """Return the same with the highest place first."""
    x = plan.inputs.args[0]
    values, places = torch.sort(x.bfloat16().float().flip(1), dim=1, descending=True, stable=True)
    return values[:, :2].contiguous(), (x.shape[1] - 1 - places)[:, :2].contiguous()


def twice(plan):
    """Return the lowest place of the second maximum's value, also where the first has the same value."""
    values, places = lowest(plan)
    again = (plan.inputs.args[0].bfloat16().float() == values[:, 1:]).byte().argmax(1, keepdim=True)
    return values, torch.cat([places[:, :1], again], 1)


def lower_half(plan):
    """Return the maxima of the first half of each row."""
    values, places = plan.inputs.args[0].bfloat16().float()[:, :32].topk(2, 1)
    return values, places


@pytest.mark.parametrize(
    ("answer", "rule", "right"),
    [
        (lowest, ToleranceRule.MEASURED, True),
        (lowest, ToleranceRule.KERNELBENCH, False),
        (highest, ToleranceRule.MEASURED, True),
        (twice, ToleranceRule.MEASURED, False),
        (lower_half, ToleranceRule.MEASURED, False),
        (lambda plan: plan.inputs.args[0].bfloat16().float().topk(2, 1), ToleranceRule.MEASURED, True),
    ],
    ids=["lowest", "lowest by KernelBench's rule", "highest", "twice", "lower half", "PyTorch"],
)
def test_any_of_equal_values_is_right(answer, rule, right):
    setup = set_up(ROUTER, SizeName.SMALL, "cpu")
    trials = AnswerTrials(setup, lambda plan: model_call.Result(answer(plan), None), rule)
    seeds = [seed for seed in range(20 * CALLS) if setup.distribution_mix.pick(seed) is Profile.AS_GIVEN][:CALLS]
    found = [trials.run(0, seed, timeout_s=60, own_values=True) for seed in seeds]
    codes = {None if each.fault is None else each.fault.finding.code for each in found}
    assert codes <= {None, Code.WRONG_VALUES.value}, "a call without equal maxima tells nothing"
    assert (codes == {None}) is right


@pytest.mark.parametrize(
    ("output", "first", "last"),
    [
        ("x.topk(2, 1)", [1, 4], [4, 1]),
        ("x.topk(2, 1, largest=False)", [0, 3], [3, 0]),
        ("x.sort(1)", [0, 3, 2, 1, 4], [3, 0, 2, 4, 1]),
        ("torch.sort(x, dim=1, descending=True)", [1, 4, 2, 0, 3], [4, 1, 2, 3, 0]),
        ("(0, x.argsort(1))", [0, 3, 2, 1, 4], [3, 0, 2, 4, 1]),
        ("x.sort(stable=True, dim=1)", [0, 3, 2, 1, 4], [0, 3, 2, 1, 4]),
        ("x.kthvalue(2, 1)", [0], [3]),
        ("x.kthvalue(4, 1, True)", [1], [4]),
        ("x[:, [0, 1, 3]].median(1)", [0], [2]),
        ("x.mode(1)", [0], [3]),
        ("x.max(1)", [1], [1]),
    ],
)
def test_operations_take_the_first_or_the_last_place(output, first, last):
    x = torch.tensor([[0.0, 3.0, 1.0, 0.0, 3.0]])
    expected = {TieBreak.FIRST: first, TieBreak.LAST: last}
    plain = eval(output, {"torch": torch, "x": x})[0]
    for choice in TieBreak:
        with choosing(choice):
            values, places = eval(output, {"torch": torch, "x": x})
        assert places.flatten().tolist() == expected[choice]
        assert not isinstance(plain, torch.Tensor) or torch.equal(values, plain)


def test_nan_has_a_place_too():
    x = torch.tensor([[1.0, NAN, 0.0, NAN]])
    for choice, place in ((TieBreak.FIRST, 1), (TieBreak.LAST, 3)):
        with choosing(choice):
            assert x.kthvalue(4, 1).indices.tolist() == [place]
            assert x.topk(1, 1).indices.tolist() == [[place]]


def test_a_number_has_one_place():
    for choice in TieBreak:
        with choosing(choice):
            assert [int(torch.tensor(2.0).topk(1, 0).indices), int(torch.tensor(2.0).sort().indices)] == [0, 0]
            assert int(torch.tensor(2.0).median(0).indices) == 0


@pytest.mark.parametrize(("output", "chooses"), [("x.topk(2, 1)", True), ("x.argmax(1)", False), ("x.exp()", False)])
def test_few_references_have_a_choice(output, chooses):
    made = reference(output)
    assert has_choice(made, CallPlan(made, 1).blocks[0]) is chooses
