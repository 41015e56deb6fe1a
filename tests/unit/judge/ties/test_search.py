"""Integers and booleans at ties: honest roundings pass, every other difference is wrong."""

from types import SimpleNamespace

import pytest
import torch

from benchmarks.numerics.judged_answers import AnswerTrials, set_up
from evaluator.findings import Code
from evaluator.judge.compare.tensor_comparison import Sides
from evaluator.judge.numerics.arithmetic_modes import Format, rounded
from evaluator.judge.numerics.single_accumulator import running
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.operation_cost import Cost
from evaluator.judge.ties import search
from evaluator.judge.ties.search import _draws, _run_until_explained, _unchanged_buffers, within_ties
from evaluator.judge.ties.seen_elements import Seen
from evaluator.judge.trial import answer_judge
from evaluator.protocol import model_call
from evaluator.records import Precision, Profile, SizeName, ToleranceRule
from tests.unit.references import problem

GREY = problem(
    "((0.299 * x[:, 0] + 0.587 * x[:, 1] + 0.114 * x[:, 2]) * 255).round().to(torch.uint8)",
    "torch.rand(16, 3, 128, 128)",
)
FACTORS = "torch.randn(64, 256), torch.randn(256, 256)"
WHOLE = problem("(x @ w * 64).round().to(torch.int32)", FACTORS, forward="x, w")
SIGNS = problem("(x @ w) > 0", FACTORS, forward="x, w")
FIRST = problem("x.argmax(1)", "torch.randint(0, 8, (64, 96)) + 0.5")
BETWEEN = "torch.randn(2048, 2, 8), 0.5 + (torch.rand(2048) - 0.5)[:, None] * 2e-5"
NEAREST = problem("((c[:, 0] * t + c[:, 1] * (1 - t))[:, None] - c).square().sum(2).argmin(1)", BETWEEN, forward="c, t")
"""The nearer of two centres for points near the middle: some are as near to the middle as roundings are large."""
CALLS = 12
"""Honest answers differ from both references: of `GREY` in one call of two, of the others in nearly each call."""


def grey(plan):
    """Return grey values with 255 in the coefficients, and fused multiply-adds: one rounding of each sum."""
    x = plan.inputs.args[0].double()
    value = (76.245 * x[:, 0]).float()
    for channel, factor in ((1, 149.685), (2, 29.07)):
        value = (value.double() + factor * x[:, channel]).float()
    return value.round().to(torch.uint8)


def in_turn(plan, factor=64):
    """Return whole numbers of a product with one accumulator for each sum, from the last term to the first."""
    x, w = plan.inputs.args
    total = torch.zeros(len(x), w.shape[1])
    for column, row in zip(x.T.flip(0), w.flip(0), strict=True):
        total = torch.addcmul(total, column[:, None], row)
    return (total * factor).round().to(torch.int32)


def nearest(plan):
    """Return the nearer centre by squares of distances with one fused accumulator for each sum."""
    c, t = plan.inputs.args
    apart = torch.addcmul(c[:, 1], t, c[:, 0] - c[:, 1])[:, None] - c
    total = torch.zeros(c.shape[:2])
    for column in apart.unbind(2):
        total = torch.addcmul(total, column, column)
    return total.argmin(1)


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


def test_an_element_with_the_exact_value_is_not_wrong():
    seen = Seen(Sides(torch.tensor([1, 2, 5]), torch.tensor([1, 9, 9]), torch.tensor([3, 2, 4])))
    assert seen.unexplained == 1
    seen.add(torch.tensor([3, 2, 5]), counts=False)
    assert (seen.unexplained, seen.decided) == (0, 0)
    seen.add(torch.tensor([3, 2, 5]))
    assert seen.decided == 1


DENSE = problem("(x @ w * 1e5).round().to(torch.int64)", FACTORS, forward="x, w")
"""Roundings change every second element."""


def test_too_many_wrong_elements_are_no_ties(monkeypatch):
    runs = []
    monkeypatch.setattr(search, "_run", lambda *given, **_: runs.append(given))
    assert codes(DENSE, lambda plan: in_turn(plan, 1e5).long(), calls=2) == [Code.WRONG_VALUES.value] * 2
    assert not runs


LATTICE = problem("x * 0.01 >= 0.5", "torch.randint(0, 100, (256, 256)).float()")


def test_another_operator_on_a_lattice_is_wrong():
    assert codes(LATTICE, lambda plan: plan.inputs.args[0] * 0.01 > 0.5) == [Code.WRONG_VALUES.value] * 3


def test_a_constant_is_no_answer_at_ties():
    rare = problem("(p := x.sum(1, keepdim=True) * x) > p.amax() * (1 - 3e-7)", "torch.rand(128, 32)")
    assert codes(rare, lambda plan: torch.zeros(128, 32, dtype=torch.bool)) == [Code.WRONG_VALUES.value] * 3
    seen = Seen(Sides(*(torch.tensor(side) for side in ([0] * 40, [0] * 32 + [1] * 8, [0] * 32 + [1] * 8))))
    assert seen.lacks_a_value
    seen = Seen(Sides(*(torch.tensor(side) for side in ([1] * 2 + [0] * 38, [1] * 8 + [0] * 32, [1] * 8 + [0] * 32))))
    assert seen.lacks_a_value
    some = torch.arange(64) % 8
    off = some.clone()
    off[:2] += 1
    assert not Seen(Sides(off, some, some)).lacks_a_value
    assert not Seen(Sides(torch.arange(17) + 1, torch.arange(17), torch.arange(17))).lacks_a_value


STATE = """
        self.register_buffer("calls", torch.zeros(()))"""


def test_a_reference_with_changing_buffers_has_no_ties(monkeypatch):
    counted = problem("(x @ w * 64 + self.calls.add_(0)).round().to(torch.int32)", FACTORS, STATE, forward="x, w")
    assert codes(counted, in_turn) == [None] * 3
    drifting = problem("(x @ w * 64 + self.calls.add_(0.002)).round().to(torch.int32)", FACTORS, STATE, forward="x, w")
    setup = set_up(drifting, SizeName.SMALL, "cpu")
    plan = CallPlan(setup.reference, 1)
    before = setup.reference.model.calls.clone()
    with _unchanged_buffers(setup.reference) as are_unchanged:
        assert are_unchanged()
        setup.reference.forward(plan.inputs, 0)
        assert not are_unchanged()
    assert torch.equal(setup.reference.model.calls, before)

    def explained(plan, block, expected, outputs, draws):
        return plan.reference.forward(block, 0) is not None

    runs = []
    with monkeypatch.context() as watched:
        watched.setattr(search, "_run", lambda *given, **_: runs.append(given))
        assert codes(drifting, in_turn, calls=1) == [Code.WRONG_VALUES.value]
    assert not runs
    monkeypatch.setattr(search, "_explained", explained)
    # The comparison itself adds to the counter: the answer is of a few calls earlier.
    assert codes(drifting, in_turn, calls=1) == [Code.WRONG_VALUES.value]


EXACT = {
    "a mask of maxima": ("x == x.amax(1, keepdim=True)", "torch.randn(64, 256)", lambda x: torch.zeros_like(x) > 0),
    "peaks of a picture": (
        "x == F.max_pool2d(x, 9, 1, 4)",
        "torch.rand(1, 1, 64, 64)",
        lambda x: torch.zeros_like(x) > 0,
    ),
    "a gate": (
        "(p := torch.softmax(x, 1)) == p.max(1, keepdim=True).values",
        "torch.randn(64, 32)",
        lambda x: torch.zeros_like(x) > 0,
    ),
    "counts without the last column": (
        "(x > 2.5).float().sum(1).to(torch.int64)",
        "torch.randn(512, 100)",
        lambda x: (x[:, :-1] > 2.5).sum(1),
    ),
    "a product of whole numbers": (
        "((x * 9).round() @ (x * 9).round().T).to(torch.int32)",
        "torch.randn(64, 64)",
        lambda x: ((x * 9).round() @ (x * 9).round().T).to(torch.int32) - (torch.arange(64) % 16 == 5).int(),
    ),
    "the last of equal elements": (
        "torch.softmax(x, 1).argmax(1)",
        "torch.randn(512, 64).index_copy(0, torch.arange(4), torch.randint(0, 2, (4, 64)).float())",
        lambda x: x.shape[1] - 1 - x.flip(1).argmax(1),
    ),
}


@pytest.mark.parametrize(("output", "given", "answer"), EXACT.values(), ids=EXACT)
def test_what_is_exact_has_no_ties(output, given, answer):
    assert codes(problem(output, given), lambda plan: answer(plan.inputs.args[0])) == [Code.WRONG_VALUES.value] * 3


NAIVE = problem("(torch.expm1(x) * 2e5).round().to(torch.int32)", "torch.rand(64, 64) / 100 + 1e-4")
ROWS = "torch.cat([torch.rand(512, 1).expand(512, 1024), torch.rand(1536, 1024)])"
EQUAL = problem("(x.sum(1) * 32).round().to(torch.int32)", ROWS)
IN_TF32 = problem("(x @ w * 4).round().to(torch.int32)", FACTORS, forward="x, w", precision=Precision.TF32)
ONCE = {
    "textbook formulas": (NAIVE, lambda x: ((torch.exp(x) - 1) * 2e5).round().to(torch.int32)),
    "equal terms in one accumulator": (EQUAL, lambda x: (running(x)[:, -1] * 32).round().to(torch.int32)),
    "TF32 where allowed": (
        IN_TF32,
        lambda x, w: (rounded(x, Format.TF32) @ rounded(w, Format.TF32) * 4).round().to(torch.int32),
    ),
}


@pytest.mark.parametrize(("of", "answer"), ONCE.values(), ids=ONCE)
def test_arithmetic_without_random_numbers_is_right_at_ties(of, answer):
    setup = set_up(of, SizeName.SMALL, "cpu")
    found = called(trials_of(setup, lambda plan: answer(*plan.inputs.args)), setup, 4)
    assert [trial.fault for trial in found] == [None] * 4
    assert at_ties(found)


@pytest.mark.parametrize(("wrong", "draws"), [(8, 16), (9, 1)])
def test_few_wrong_elements_are_looked_for_in_all_draws(wrong, draws, monkeypatch):
    runs = []
    monkeypatch.setattr(search, "_run", lambda *given, **_: runs.append(given))
    monkeypatch.setattr(search, "_modes", lambda of, draw: [(None, draw)])
    seen = {"output": SimpleNamespace(unexplained=wrong, steps_off=wrong, decided=0, has_tolerance=False)}
    plan = SimpleNamespace(reference=SimpleNamespace(problem=WHOLE))
    assert _run_until_explained(plan, None, seen, 16) is None
    assert len(runs) == draws


@pytest.mark.parametrize(("operations", "draws"), [(10, 16), (10_000, 5), (1_000_000, 0)])
def test_a_slow_reference_has_fewer_draws(operations, draws, monkeypatch):
    setup = set_up(WHOLE, SizeName.SMALL, "cpu")
    monkeypatch.setattr(search, "cost_of", lambda _: Cost(0, 0, operations))
    assert _draws(CallPlan(setup.reference, 1)) == draws
    assert (called(trials_of(setup, in_turn), setup, 1)[0].fault is None) is (draws > 0)


def test_a_failed_search_is_not_repeated(monkeypatch):
    searches = []
    monkeypatch.setattr(answer_judge, "within_ties", lambda *given: searches.append(given) or within_ties(*given))
    setup = set_up(GREY, SizeName.SMALL, "cpu")
    found = called(trials_of(setup, lambda plan: plain(plan) ^ 1), setup, 3)
    assert [trial.fault.finding.code for trial in found] == [Code.WRONG_VALUES.value] * 3
    assert len(searches) == 1
