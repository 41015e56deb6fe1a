"""Numbers in fp32 at a step of the reference: honest roundings pass, every other difference is wrong."""

from types import SimpleNamespace

import pytest
import torch
from msgspec.structs import replace

from benchmarks.numerics.judged_answers import set_up
from evaluator.findings import Code
from evaluator.judge.compare.tensor_comparison import Sides
from evaluator.judge.compare.tolerance import bounds
from evaluator.judge.numerics.arithmetic_modes import Format, rounded
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.ties import search
from evaluator.judge.ties.seen_elements import Seen, _lines_and_rest
from evaluator.judge.trial import answer_judge
from evaluator.protocol import model_call
from evaluator.records import Profile, SizeName, ToleranceRule
from tests.unit.judge.ties.test_search import FACTORS, at_ties, called, codes, plain, trials_of
from tests.unit.references import problem

QUARTERS = problem("(x @ w * 16).round() / 16", FACTORS, forward="x, w")
FAKE = problem("(x / 0.013).round().clamp(-128, 127) * 0.013", "torch.randn(256, 1024)")
OF_ROWS = problem(
    "(x / (s := x.abs().amax(1, keepdim=True) / 127)).round() @ w * s",
    "torch.randn(128, 1024), torch.randint(-127, 128, (1024, 64)).float()",
    forward="x, w",
)
ODD = problem("((x @ w * 16).round() % 2).bfloat16()", FACTORS, forward="x, w")
CALLS = 12


def summed(x, w):
    """Return a product with one accumulator for each sum, from the last term to the first."""
    total = torch.zeros(len(x), w.shape[1])
    for column, row in zip(x.T.flip(0), w.flip(0), strict=True):
        total = torch.addcmul(total, column[:, None], row)
    return total


HONEST = {
    "rounded products": (QUARTERS, lambda x, w: (summed(x, w) * 16).round() / 16),
    "a quantiser by the reciprocal": (FAKE, lambda x: (x * (1 / 0.013)).round().clamp(-128, 127) * 0.013),
}
HALF = {
    "odd products in bf16": (ODD, lambda x, w: ((summed(x, w) * 16).round() % 2).bfloat16()),
    "odd products in fp16": (
        replace(ODD, source=ODD.source.replace("bfloat16", "half"), sha256="odd in fp16"),
        lambda x, w: ((summed(x, w) * 16).round() % 2).half(),
    ),
}
"""Outputs in half precision of operations on fp32."""


def unseen(of, answer, calls=3):
    """Make calls of a problem whose steps no other order has shown: nothing stored widens the tolerance."""
    setup = set_up(of, SizeName.SMALL, "cpu")
    setup = setup._replace(distribution_mix=setup.distribution_mix._replace(rounding={}, rare={}))
    return called(trials_of(setup, answer), setup, calls)


@pytest.mark.parametrize(("of", "answer"), [*HONEST.values(), *HALF.values()], ids=[*HONEST, *HALF])
def test_honest_roundings_at_steps_are_right(of, answer, monkeypatch):
    found = unseen(of, lambda plan: answer(*plan.inputs.args), CALLS)
    assert [trial.fault for trial in found] == [None] * CALLS
    assert any(each.error_ratio == 1.0 for each in at_ties(found))
    monkeypatch.setattr(answer_judge, "within_ties", lambda plan, checks, views, limits: checks)
    assert any(trial.fault for trial in unseen(of, lambda plan: answer(*plan.inputs.args), CALLS))


def test_a_code_at_a_tie_may_move_a_whole_row():
    """Of the two roundings of a quotient, half of the draws lead nowhere; in one direction, 16 draws missed a tie."""

    def by_reciprocal(plan):
        x, w = plan.inputs.args
        largest = x.abs().amax(1, keepdim=True)
        return (x * (127 / largest)).round() @ w * (largest / 127)

    found = unseen(OF_ROWS, by_reciprocal, 40)
    assert [trial.fault for trial in found] == [None] * 40
    assert any(each.error_ratio == 1.0 for each in at_ties(found))


@pytest.mark.parametrize(("of", "answer"), HONEST.values(), ids=HONEST)
def test_a_single_number_elsewhere_is_wrong(of, answer):
    def wrong(plan):
        values = answer(*plan.inputs.args)
        values.view(-1)[7] += 1
        return values

    assert {trial.fault.finding.code for trial in unseen(of, wrong)} == {Code.WRONG_VALUES.value}


def test_many_steps_are_wrong_also_where_the_reference_is_a_step_off():
    """A step of the reference widens the tolerance to a step. The number of such errors then fails the answer."""

    def many_off(plan):
        values = plain(plan).clone()
        values.view(-1)[:256] += 0.0625
        return values

    found = unseen(QUARTERS, many_off, CALLS)
    assert {trial.fault.finding.code for trial in found} == {Code.WRONG_VALUES.value}
    assert any(each.tolerance > 0.01 for trial in found for each in trial.check.tensors)


def test_a_column_a_step_off_is_wrong_where_the_reference_is_a_step_off_in_each_call():
    """As many elements may be a step off as other orders flip in the same call, times 4, and 32."""
    codes_of_rows = problem("(x / 0.013).round() / 4", "torch.randn(512, 1024)")

    def off(plan):
        values = plain(plan).clone()
        values[:, 7] += 0.25
        return values

    found = unseen(codes_of_rows, off)
    assert {trial.fault.finding.code for trial in found} == {Code.WRONG_VALUES.value}
    assert any(each.honest_error_ratio > 0.1 for trial in found for each in trial.check.tensors)


def test_tf32_changes_more_elements_than_roundings_do():
    def cut_off(plan):
        x, w = (rounded(each, Format.TF32_CUT) for each in plan.inputs.args)
        return (x @ w * 16).round() / 16

    found = {trial.fault.finding.code for trial in unseen(QUARTERS, cut_off)}
    assert found <= {Code.WRONG_VALUES.value, Code.LOWER_PRECISION.value}


def test_another_operator_on_a_lattice_is_wrong():
    lattice = problem("torch.where(x * 0.01 >= 0.5, x, 0.0)", "torch.randint(0, 100, (256, 256)).float()")

    def above(plan):
        x = plan.inputs.args[0]
        return torch.where(x * 0.01 > 0.5, x, 0.0)

    assert {trial.fault.finding.code for trial in unseen(lattice, above)} == {Code.WRONG_VALUES.value}


def test_a_kernel_without_the_threshold_is_wrong():
    """Of a row's similarity to itself, roundings near the threshold decide in all 24 elements."""
    cosines = "(n := F.normalize(x, dim=1)) @ n.T"
    masked = problem(f"torch.where((s := {cosines}) > 1 - 1e-6, x[:, :24], s)", "torch.randn(24, 512)")

    def without(plan):
        n = torch.nn.functional.normalize(plan.inputs.args[0], dim=1)
        return n @ n.T

    assert {trial.fault.finding.code for trial in unseen(masked, without)} == {Code.WRONG_VALUES.value}
    assert search._are_too_many(24, 24)
    assert not search._are_too_many(24, 40)
    assert not search._are_too_many(4, 0)


def test_a_large_number_in_a_run_widens_no_other_tolerance():
    honest = torch.randn(64, 64)
    actual, run = honest.clone(), honest.clone()
    actual[3, 3] += 5
    run[3, 3] += 0.01
    run[9, 9] = 1e9
    seen = Seen(Sides(actual, honest.double(), honest), bounds(ToleranceRule.MEASURED, QUARTERS, torch.float32))
    seen.add(run)
    assert (seen.unexplained, seen.decided) == (1, 2)


def test_an_output_without_the_elements_of_a_value_is_wrong():
    numbers = torch.arange(512) % 64
    off = torch.where(numbers == 7, 8, numbers)
    assert Seen(Sides(off, numbers, numbers)).lacks_a_value
    two = off.clone()
    two[numbers == 7] = torch.tensor([8, 8, 7, 7, 7, 7, 7, 7])
    assert not Seen(Sides(two, numbers, numbers)).lacks_a_value
    sparse = torch.where(torch.arange(4096) % 64 == 0, torch.arange(4096), 0)
    assert Seen(Sides(torch.zeros_like(sparse), sparse, sparse)).lacks_a_value
    few = torch.where(sparse < 56 * 64, sparse, 0)
    assert not Seen(Sides(few, sparse, sparse)).lacks_a_value
    of_24 = torch.where(sparse < 25 * 64, sparse, 0)
    assert not Seen(Sides(torch.where(of_24 < 8 * 64, 0, of_24), of_24, of_24)).lacks_a_value
    assert Seen(Sides(torch.where(of_24 < 9 * 64, 0, of_24), of_24, of_24)).lacks_a_value


def test_an_output_without_wrong_elements_in_a_block_needs_no_steps():
    plan = SimpleNamespace(reference=SimpleNamespace(problem=QUARTERS))
    assert search._have_steps(plan, None, {"output": SimpleNamespace(has_tolerance=True, unexplained=0)})


def test_a_row_or_a_column_is_one_step():
    changed = torch.zeros(6, 8, dtype=torch.bool)
    changed[2, :5] = True
    changed[:, 7] = True
    changed[4, :2] = True
    assert _lines_and_rest(changed) == (2, 2)
    assert _lines_and_rest(changed[2]) == (0, 6)
    assert _lines_and_rest(torch.eye(24, dtype=torch.bool)) == (0, 24)
    assert _lines_and_rest(torch.tensor(True)) == (0, 1)


@pytest.mark.parametrize(("profile", "right"), [(Profile.CONSTANT_ROWS, True), (Profile.AS_GIVEN, False)])
def test_a_constant_row_at_a_tie_is_one_element(profile, right):
    """By the reciprocal, a constant row is a code off: no other row is near a step, and no other has that code."""
    setup = set_up(problem("(x / 0.013).round() * 0.013", "torch.zeros(64, 16)"), SizeName.SMALL, "cpu")
    x = (torch.arange(64.0) * 0.013 + 0.001).repeat(16, 1).T.contiguous()
    x[23] = 23.5 * 0.013
    honest, by_reciprocal = (x / 0.013).round() * 0.013, (x * (1 / torch.tensor(0.013))).round() * 0.013
    assert (honest != by_reciprocal).any(1).sum() == 1
    plan = SimpleNamespace(reference=setup.reference, profile=profile, random_seed=0, gradients=None)
    wanted = SimpleNamespace(exact=model_call.Result(honest.double(), None), honest=model_call.Result(honest, None))
    outputs = {"output": search._Output(by_reciprocal, bounds(ToleranceRule.MEASURED, QUARTERS, torch.float32))}
    assert search._explained(plan, Arguments([x], {}), wanted, outputs, 16) is right


def test_a_row_is_an_element_only_if_inputs_outputs_and_answers_have_constant_rows():
    honest = torch.arange(64.0)[:, None].expand(64, 16)
    off = honest.clone()
    off[5] += 1
    rows = Seen(Sides(off, honest, honest), constant_rows=True)
    assert (rows.has_lines, rows.steps_off, rows.unexplained, rows.lacks_a_value) == (False, 1, 16, False)
    rows.add(off)
    assert (rows.decided, rows.changed_lines, rows.unexplained) == (1, 0, 0)
    other = Seen(Sides(off, honest, honest))
    assert (other.has_lines, other.steps_off, other.lacks_a_value) == (True, 1, True)
    uneven = honest.clone()
    uneven[9, 3] += 1
    assert Seen(Sides(off, uneven, uneven), constant_rows=True).has_lines
    assert Seen(Sides(uneven, honest, honest), constant_rows=True).steps_off == 1
    uneven[9] += 1
    assert Seen(Sides(uneven, honest, honest), constant_rows=True).has_lines
    few = honest % 4
    assert Seen(Sides(few.where(few != 2, 0), few, few), constant_rows=True).lacks_a_value


@pytest.mark.parametrize(("rows", "right"), [(4, True), (16, False)])
def test_many_constant_rows_on_a_lattice_are_wrong(rows, right):
    """As for elements, 8 rows near a step are too few to tell a class on a lattice from rows at ties."""
    setup = set_up(problem("(x * 0.1 >= 0.3).float() * x", "torch.zeros(512, 16)"), SizeName.SMALL, "cpu")
    x = (torch.arange(512.0) % 97 + 5).repeat(16, 1).T.contiguous()
    x[:rows] = 3
    honest, above = (x * 0.1 >= 0.3).float() * x, (x > 3).float() * x
    plan = SimpleNamespace(reference=setup.reference, profile=Profile.CONSTANT_ROWS, random_seed=0, gradients=None)
    wanted = SimpleNamespace(exact=model_call.Result(honest.double(), None), honest=model_call.Result(honest, None))
    outputs = {"output": search._Output(above, bounds(ToleranceRule.MEASURED, QUARTERS, torch.float32))}
    assert search._explained(plan, Arguments([x], {}), wanted, outputs, 16) is right


@pytest.mark.parametrize(
    "forward", ["(t[:, None] * 0.1 >= 0.3) * (x @ w)", "torch.where(t[:, None] * 0.1 >= 0.3, x @ w, 0.0)"]
)
def test_another_operator_is_wrong_where_whole_rows_lie_on_a_lattice(forward):
    """`>` for `>=` leaves out each row with t = 3: a few of 256."""
    rows = "torch.randn(256, 64), torch.randn(64, 64), torch.randint(0, 100, (256,)).float()"
    gated = problem(forward, rows, forward="x, w, t")

    def above(plan):
        x, w, t = plan.inputs.args
        return (t[:, None] > 3) * (x @ w)

    found = {trial.fault.finding.code for trial in unseen(gated, above)}
    assert found <= {Code.WRONG_VALUES.value, Code.LOWER_PRECISION.value}


def test_a_step_at_a_single_element_is_found_in_either_direction():
    """Half of the ties are crossed upwards, the other half downwards; nothing else of 16 elements is near a step."""
    setup = set_up(problem("(x / 0.013).round() * 0.013", "torch.zeros(1, 16)"), SizeName.SMALL, "cpu")
    plan = CallPlan(setup.reference, 1)
    limit = bounds(ToleranceRule.MEASURED, QUARTERS, torch.float32)
    for tie in (-32, -31, -30, -29, -21, -20, -5, 3, 7, 20, 21, 27, 28, 29, 30, 31):
        x = torch.zeros(1, 16)
        x[0, 3] = (tie + 0.5) * 0.013
        honest = (x / 0.013).round() * 0.013
        off = honest.clone()
        off[0, 3] += 0.013
        seen = {"output": Seen(Sides(off, honest.double(), honest), limit)}
        assert search._have_steps(plan, Arguments([x], {}), seen), tie
        off[0, 3] = honest[0, 3] + (0.013 if honest[0, 3] < x[0, 3] else -0.013)
        seen = {"output": Seen(Sides(off, honest.double(), honest), limit)}
        assert search._run_until_explained(plan, Arguments([x], {}), seen, 1) is not None, tie


def test_the_runs_that_look_for_steps_do_not_count():
    counted = []
    of_run = SimpleNamespace(has_tolerance=True, unexplained=1, decided=1, count_anew=lambda: counted.append(0))
    assert search._have_steps(SimpleNamespace(), None, {"output": of_run})
    assert counted == [0]


@pytest.mark.parametrize(
    ("dtype", "nonfinite", "wrong", "may_be"),
    [
        (torch.float32, 0, 4, True),
        (torch.float32, 0, 5, False),
        (torch.float32, 1, 4, False),
        (torch.float64, 0, 4, False),
    ],
)
def test_few_finite_numbers_in_fp32_may_be_at_ties(dtype, nonfinite, wrong, may_be):
    limit = bounds(ToleranceRule.MEASURED, QUARTERS, dtype)
    check = SimpleNamespace(nonfinite=nonfinite, mismatches=wrong)
    assert search._may_be_tied(check, search._Output(torch.ones(64, dtype=dtype), limit)) is may_be


def test_a_reference_without_steps_is_not_searched(monkeypatch):
    runs = []
    run = search._run
    monkeypatch.setattr(search, "_run", lambda *given, **how: runs.append(given) or run(*given, **how))

    def one_off(plan):
        values = plain(plan).clone()
        values[3, 3] += 1
        return values

    assert codes(problem("x.exp() / 3"), one_off, calls=1) == [Code.WRONG_VALUES.value]
    assert len(runs) == 4 * len(search._ORDERS)


@pytest.mark.parametrize(
    ("value", "run", "explained"),
    [(1.5, 1.5, True), (1.5, 1.50002, True), (1.5, 1.51, False), (1.00009, 1.00004, False), (1.5, 1.0, False)],
)
def test_a_run_explains_a_number_near_its_own_if_that_is_a_step_away(value, run, explained):
    honest = torch.ones(64)
    actual, other = honest.clone(), honest.clone()
    actual[5], other[5] = value, run
    limit = bounds(ToleranceRule.MEASURED, QUARTERS, torch.float32)
    seen = Seen(Sides(actual, honest.double(), honest), limit)
    assert (seen.unexplained, seen.has_tolerance) == (1, True)
    seen.add(other)
    assert seen.unexplained == (not explained)
