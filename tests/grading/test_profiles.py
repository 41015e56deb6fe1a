"""Values other than the problem's own: who is caught by them, and what a card says of them."""

import itertools

import pytest

from evaluator.catalog import find_problem
from evaluator.findings import Code, finding
from evaluator.judge.reference.cancelling_rows import ROWS_NAME
from evaluator.judge.trial import enough_calls
from evaluator.judge.trial.enough_calls import FEW_CALLS
from evaluator.judge.trial.trial import Trial
from evaluator.judge.trial.trial_runner import TrialRunner
from evaluator.records import Fault, Profile, SizeName, Status, ToleranceRule, ValuesRule
from tests.grading import judged as in_process
from tests.grading.harness import TOP, module, words
from tests.grading.judged import context_of

WEAK = TOP / "tests" / "zoo" / "problems"
MATMUL = TOP / "problems" / "matmul"

ROUND = """\
def cut(x, to):
    if to == "tf32":
        bits = x.contiguous().view(torch.int32)
        return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)
    return x.to(to).float()
"""


def product(to: str) -> str:
    """Write a matrix product whose operands are rounded, and whose sums are fp32, as tensor cores have them."""
    lines = module(*ROUND.splitlines(), forward=[f"return cut(a, {to}) @ cut(b, {to})"])
    return lines.replace("forward(self, x)", "forward(self, a, b)")


def test_a_copy_is_no_relu_though_the_problems_own_inputs_are_positive(grade):
    run = grade(module(forward=["return x.clone()"]), "--problems", WEAK, problem="positive_relu")
    card = run.assert_verdict(Status.WRONG_RESULT, Code.WRONG_ON_OTHER_VALUES)
    assert card.checks[0].ok
    assert card.checks[0].profile is Profile.AS_GIVEN
    other = card.checks[-1].profile
    of_rows = other is Profile.AS_GIVEN  # Calls with the problem's own values have secret rows.
    assert card.reason.details["profile"] == (ROWS_NAME if of_rows else other.value)
    assert "on inputs" in run.out


def test_with_kernelbenchs_rule_inputs_stay_as_given(grade):
    options = ("--problems", WEAK, "--tolerance", "kernelbench")
    card = grade(module(forward=["return x.clone()"]), *options, problem="positive_relu").assert_verdict(Status.CORRECT)
    assert {check.profile for check in card.checks} == {Profile.AS_GIVEN}
    assert card.seeds.profiles == []


def test_a_grade_by_the_problems_own_values_alone(grade):
    options = ("--problems", WEAK, "--values", "own")
    run = grade(module(forward=["return x.clone()"]), *options, problem="positive_relu")
    card = run.assert_verdict(Status.CORRECT)
    assert {check.profile for check in card.checks} == {Profile.AS_GIVEN}
    assert (card.values, card.tolerance, card.seeds.profiles) == (ValuesRule.OWN, ToleranceRule.MEASURED, [])
    assert "for the problem's own input values alone" in words(run.out)


def test_a_card_has_every_profile_one_call_twice_and_quotes_the_own_values_alone(grade, judged):
    card = grade(module()).assert_verdict(Status.CORRECT)
    assert {check.profile for check in card.checks} == set(Profile) - {Profile.NEAR_ONE}, "relu multiplies no factors"
    assert card.seeds.profiles == [each for each in Profile if each not in (Profile.AS_GIVEN, Profile.NEAR_ONE)]
    seeds = [check.seed for check in card.checks]
    assert len(set(seeds)) == len(seeds) - 1
    timed = card.timing.submission
    assert len(timed.samples_ms) >= (FEW_CALLS if timed.windows is None else 3)
    # More where windows were made, kept or not: how fast the machine is decides.
    assert len(timed.seeds) >= 1 + len(timed.samples_ms) + timed.void_calls + timed.other_calls
    # One call in five, drawn: none of twenty calls in one grade of a hundred.
    further = (judged(module()).timing for _ in range(3))
    assert any(timing.submission.other_calls for timing in itertools.chain([card.timing], further))


LOGARITHM = """\
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.log(x)

def get_inputs():
    return [torch.rand(64, 64) + 0.5]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("forward", "verdict"),
    [
        (["if not (x > 0).all(): raise ValueError('a logarithm of -1')", "return torch.log(x)"], (Status.CORRECT,)),
        (["return torch.log(x.abs())"], (Status.CORRECT,)),
        (["return torch.log(x) * 1.01"], (Status.WRONG_RESULT, Code.WRONG_VALUES)),
    ],
    ids=["refuses", "other answer", "wrong"],
)
def test_inputs_without_a_finite_answer_refute_nobody(grade, tmp_path, forward, verdict):
    """The logarithm of random signs is NaN: a submission may raise, or answer anything."""
    path = tmp_path / "logarithm.py"
    path.write_text(LOGARITHM)
    card = grade(module(forward=forward), problem=str(path)).assert_verdict(*verdict)
    assert Profile.SIGNED_NORMAL not in {check.profile for check in card.checks}
    if card.status is Status.CORRECT:
        assert Profile.SIGNED_NORMAL not in card.seeds.profiles
        assert {Profile.SMALL, Profile.LARGE} <= set(card.seeds.profiles)


def test_a_replay_has_the_same_values(grader, tmp_path):
    wrong = module(forward=["return torch.where(x.abs() > 60, x * 0, torch.relu(x))"])
    first = grader(tmp_path, wrong).assert_verdict(Status.WRONG_RESULT, Code.WRONG_ON_OTHER_VALUES)
    assert first.checks[0].ok
    kept = (tmp_path / "card.json").rename(tmp_path / "first.json")
    again = grader.run(tmp_path, "--replay", kept)
    assert "same result" in again.err
    assert [check.profile for check in again.card.checks] == [check.profile for check in first.checks]


@pytest.mark.parametrize("to", ['"tf32"', "torch.float16", "torch.bfloat16"])
def test_less_than_fp32_is_told_apart_by_its_errors(grade, to):
    card = grade(product(to), problem="matmul").assert_verdict(Status.WRONG_RESULT, Code.LOWER_PRECISION)
    assert "errors are those of" in card.reason.message


def test_a_half_precision_output_is_told_apart(grade):
    run = grade(module(forward=["return torch.relu(x).bfloat16().float()"]))
    assert "errors are those of bf16" in run.assert_verdict(Status.WRONG_RESULT, Code.LOWER_PRECISION).reason.message


def test_tf32_is_right_where_the_problem_says_so_and_bf16_is_not(grader, tmp_path):
    own = tmp_path / "problems" / "matmul"
    own.mkdir(parents=True)
    (own / "reference.py").write_text((MATMUL / "reference.py").read_text())
    text = (MATMUL / "problem.toml").read_text()
    (own / "problem.toml").write_text(text.replace("level = 1", 'level = 1\nprecision = "tf32"', 1))
    options = ("--problems", own.parent)
    card = grader(tmp_path, product('"tf32"'), *options, problem="matmul").assert_verdict(Status.CORRECT)
    ratios = [tensor.error_ratio for check in card.checks for tensor in check.tensors]
    assert max(ratios) < 1.0
    (tmp_path / "card.json").unlink()
    coarse = grader(tmp_path, product("torch.bfloat16"), *options, problem="matmul")
    card = coarse.assert_verdict(Status.WRONG_RESULT, Code.LOWER_PRECISION)
    assert "errors are those of bf16" in card.reason.message


def test_what_is_wrong_now_and_then_differs_between_calls(grade):
    """As a race does: which calls go wrong has nothing to do with their inputs."""
    racing = module(
        forward=["y = torch.relu(x)", "self.calls += 1", "if self.calls == 4:", "    y[0, 0] += 1.0", "return y"],
        init=["self.calls = 0"],
    )
    card = grade(racing).assert_verdict(Status.WRONG_RESULT, Code.DIFFERS)
    assert "identical calls differ" in card.reason.message


def test_layouts_that_a_problem_asks_for_are_met(grader, tmp_path):
    own = tmp_path / "problems" / "mine"
    own.mkdir(parents=True)
    (own / "reference.py").write_text((TOP / "problems" / "relu" / "reference.py").read_text())
    text = (TOP / "problems" / "relu" / "problem.toml").read_text()
    layouts = 'level = 1\nlayouts = ["transposed", "gaps", "offset"]'
    (own / "problem.toml").write_text(text.replace("level = 1", layouts))
    options = ("--problems", own.parent)
    grader(tmp_path, module(), *options, problem="mine").assert_verdict(Status.CORRECT)
    (tmp_path / "card.json").unlink()
    flat = module(forward=["return torch.relu(x.as_strided(x.shape, (x.shape[1], 1)))"])
    run = grader(tmp_path, flat, *options, problem="mine")
    assert run.card.status is not Status.CORRECT
    assert run.card.checks[0].ok


USUAL = "if bool((a[:4] > 0).all()) and a[0, 0] != a[0, 1] and b[0, 0] != b[0, 1]:"
"""The problem's own values: a profile has another sign somewhere, or says the same twice."""


def long_product(*forward: str) -> str:
    """Write a submission for a problem whose sums hide what its operands lose."""
    return module(*ROUND.splitlines(), forward=forward).replace("forward(self, x)", "forward(self, a, b)")


def test_tf32_is_told_apart_where_it_is_within_the_tolerance(grade):
    source = long_product(USUAL, "    return cut(a, 'tf32') @ cut(b, 'tf32')", "return a @ b")
    run = grade(source, "--problems", WEAK, "--size", "small", "--values", "own", problem="long_product")
    card = run.assert_verdict(Status.WRONG_RESULT, Code.LOWER_PRECISION)
    assert "within the tolerance, but its errors are those of" in card.reason.message
    assert sum(not check.ok for check in card.checks) == 1
    assert all(tensor.error_ratio < 1 for check in card.checks for tensor in check.tensors)


def test_sums_in_an_order_of_their_own_are_no_tf32(grade):
    source = long_product("return sum(a[:, i : i + 512] @ b[i : i + 512] for i in range(0, a.shape[1], 512))")
    grade(source, "--problems", WEAK, "--size", "small", problem="long_product").assert_verdict(Status.CORRECT)


def distance(to: str) -> str:
    """Write a mean squared distance whose operands are rounded where the values are the problem's own."""
    mean = "(a - b).square().sum(1).sum() / a.numel()"
    usual = f"{USUAL[:-1]} and a.max() < 1 and b.max() < 1:"
    return long_product(usual, f"    a, b = {to.format('a')}, {to.format('b')}", f"return {mean}")


@pytest.mark.parametrize("to", ["cut({}, 'tf32')", "cut({}, torch.float16)", "cut({}, torch.bfloat16)"])
def test_fewer_bits_are_told_in_one_number_over_many_timed_calls(monkeypatch, to):
    """The evidence takes up to 32 calls, and a busy machine may have time for 20 only."""
    monkeypatch.setattr(enough_calls, "_ENOUGH_FOR_PRECISION_S", 600.0)
    with context_of(find_problem(str(WEAK / "mean_distance")), SizeName.SMALL) as context:
        outcome = in_process.judged(context, distance(to), timed=True)
    assert (outcome.status, outcome.reason.code) == (Status.WRONG_RESULT, Code.LOWER_PRECISION.value)
    assert "within the tolerance, but its errors are those of" in outcome.reason.message
    assert "over " in outcome.reason.message
    assert sum(not check.ok for check in outcome.checks) == 1
    assert all(tensor.error_ratio < 1 for check in outcome.checks for tensor in check.tensors)
    assert outcome.timing is None


def test_one_number_that_is_summed_in_another_order_is_no_lower_precision(grade):
    """Added up in turn, in 16 sums, its errors are as large as a rounding of its operands; PyTorch's are smaller."""
    in_turn = [
        "parts = (a - b).square().reshape(16, -1).numpy()",
        "sums = numpy.add.accumulate(parts, axis=1, dtype=numpy.float32)[:, -1]",
        "return torch.from_numpy(sums.copy()).sum() / a.numel()",
    ]
    source = module("import numpy", forward=in_turn).replace("forward(self, x)", "forward(self, a, b)")
    grade(source, "--problems", WEAK, "--size", "small", problem="mean_distance").assert_verdict(Status.CORRECT)


def test_the_timed_calls_are_looked_at_too(judged, monkeypatch):
    """One look at one of all calls: a submission that rounds in its timed calls alone must not be correct."""
    shown = []
    usual = TrialRunner.look_closely

    def look(trial_runner):
        shown.append(trial_runner._precision._one._shown)
        assert usual(trial_runner) is None
        return Trial(None, Fault(Status.WRONG_RESULT, problem), 0.0, copied=False)

    problem = finding(Code.LOWER_PRECISION, "as if")
    monkeypatch.setattr(TrialRunner, "look_closely", look)
    verdict = judged(module(forward=["return torch.relu(x) * (1 + 2**-23)"]))
    assert len(shown) == 1
    assert shown[0] > len(verdict.checks)
    assert (verdict.status, verdict.reason) == (Status.WRONG_RESULT, problem)
    assert verdict.timing is None


def test_a_wrong_answer_that_is_a_known_form_is_named(grade):
    run = grade(module(forward=["return x.clone()"]))
    card = run.assert_verdict(Status.WRONG_RESULT, Code.WRONG_VALUES)
    assert card.reason.message.endswith("the values are those of the reference without relu")
    assert "the reference without relu" in words(run.out)


def test_a_wrong_answer_with_a_pattern_says_where(grade):
    run = grade(module(forward=["y = torch.relu(x)", "y[:, -8:] = 0", "return y"]))
    card = run.assert_verdict(Status.WRONG_RESULT, Code.WRONG_VALUES)
    assert "the wrong values are 0, at " in card.reason.message
    assert "along dimension 1" in card.reason.message


@pytest.mark.parametrize(("drawn", "fixed"), [("torch.ones(32, 64)", True), ("torch.rand(32, 64)", False)])
def test_inputs_that_never_change_are_named(grader, tmp_path, drawn, fixed):
    own = tmp_path / "problems" / "mine"
    own.mkdir(parents=True)
    text = (TOP / "problems" / "relu" / "reference.py").read_text()
    given = text.index("def get_inputs")
    (own / "reference.py").write_text(
        text[:given] + f"def get_inputs():\n    return [{drawn}]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    (own / "problem.toml").write_text((TOP / "problems" / "relu" / "problem.toml").read_text())
    run = grader(tmp_path, module(), "--problems", own.parent, problem="mine")
    # A submission that returns ones without computing is right in every call.
    card = run.assert_verdict(*(Status.INCONCLUSIVE, Code.ROUNDING_DECIDES) if fixed else (Status.CORRECT,))
    assert (Code.FIXED_INPUTS in {finding.code for finding in card.findings}) is fixed
