"""Values other than the problem's own: who is caught by them, and what a card says of them."""

import pytest

from evaluator.findings import Code, finding
from evaluator.judge.trial.trial import Trial
from evaluator.judge.trial.trial_runner import TrialRunner
from evaluator.records import Fault, Layout, Precision, Profile, SizeName, Status, ToleranceRule, ValuesRule
from tests.grading.harness import CHECK, TOP, module, words
from tests.grading.judged import context_of, judged_by_values, verdict
from tests.grading.judged import judged as judged_in
from tests.unit.references import problem

WEAK = TOP / "tests" / "zoo" / "problems"
RELU = "torch.relu(x)"


def test_a_grade_by_the_problems_own_values_alone(grade):
    options = ("--problems", WEAK, "--values", "own", *CHECK)
    run = grade(module(forward=["return x.clone()"]), *options, problem="positive_relu")
    card = run.assert_verdict(Status.CORRECT)
    assert {check.profile for check in card.checks} == {Profile.AS_GIVEN}
    assert (card.values, card.tolerance, card.seeds.profiles) == (ValuesRule.OWN, ToleranceRule.MEASURED, [])
    assert "for the problem's own input values alone" in words(run.out)


def test_a_replay_has_the_same_values(grader, tmp_path):
    wrong = module(forward=["return torch.where(x.abs() > 60, x * 0, torch.relu(x))"])
    first = grader(tmp_path, wrong).assert_verdict(Status.WRONG_RESULT, Code.WRONG_ON_OTHER_VALUES)
    assert first.checks[0].ok
    kept = (tmp_path / "card.json").rename(tmp_path / "first.json")
    again = grader.run(tmp_path, "--replay", kept)
    assert "same result" in again.err
    assert [check.profile for check in again.card.checks] == [check.profile for check in first.checks]


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        ("(a.view(torch.int32) & ~0x1FFF).view(torch.float32) @ b", (Status.CORRECT, None)),
        ("a.bfloat16().float() @ b.bfloat16().float()", (Status.WRONG_RESULT, Code.LOWER_PRECISION)),
    ],
    ids=["TF32", "bf16"],
)
def test_tf32_is_right_where_the_problem_says_so_and_bf16_is_not(product, expected):
    own = problem("a @ b", "torch.randn(64, 512), torch.randn(512, 64)", forward="a, b", precision=Precision.TF32)
    with context_of(own, SizeName.SMALL) as context:
        outcome = judged_by_values(context, module(forward=[f"return {product}"]).replace("self, x", "self, a, b"))
    assert verdict(outcome) == expected, outcome.reason


def test_what_is_wrong_now_and_then_differs_between_calls(judged):
    """As a race does: which calls go wrong has nothing to do with their inputs."""
    racing = module(
        forward=["y = torch.relu(x)", "self.calls += 1", "if self.calls == 4:", "    y[0, 0] += 1.0", "return y"],
        init=["self.calls = 0"],
    )
    outcome = judged(racing)
    assert verdict(outcome) == (Status.WRONG_RESULT, Code.DIFFERS)
    assert "identical calls differ" in outcome.reason.message


def test_layouts_that_a_problem_asks_for_are_met():
    flat = module(forward=["return torch.relu(x.as_strided(x.shape, (x.shape[1], 1)))"])
    with context_of(problem(RELU, "torch.randn(32, 64)", layouts=list(Layout)), SizeName.SMALL) as context:
        assert judged_in(context, module()).status is Status.CORRECT
        outcome = judged_in(context, flat)
    assert outcome.status is not Status.CORRECT
    assert outcome.checks[0].ok


def test_the_timed_calls_are_looked_at_too(judged, monkeypatch):
    """One look at one of all calls: a submission that rounds in its timed calls alone must not be correct."""
    shown = []
    usual = TrialRunner.look_closely

    def look(trial_runner):
        shown.append(trial_runner._precision._one._shown)
        assert usual(trial_runner) is None
        return Trial(None, Fault(Status.WRONG_RESULT, as_if), 0.0, copied=False)

    as_if = finding(Code.LOWER_PRECISION, "as if")
    monkeypatch.setattr(TrialRunner, "look_closely", look)
    outcome = judged(module(forward=["return torch.relu(x) * (1 + 2**-23)"]))
    assert len(shown) == 1
    assert shown[0] > len(outcome.checks)
    assert (outcome.status, outcome.reason, outcome.timing) == (Status.WRONG_RESULT, as_if, None)


def test_a_wrong_answer_that_is_a_known_form_is_named(grade):
    run = grade(module(forward=["return x.clone()"]))
    card = run.assert_verdict(Status.WRONG_RESULT, Code.WRONG_VALUES)
    assert card.reason.message.endswith("the values are those of the reference without relu")
    assert "the reference without relu" in words(run.out)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # A submission that returns ones without computing is right in every call.
        ("torch.ones(32, 64)", (Status.INCONCLUSIVE, Code.ROUNDING_DECIDES)),
        ("torch.rand(32, 64)", (Status.CORRECT, None)),
    ],
)
def test_inputs_that_never_change_are_named(given, expected):
    with context_of(problem(RELU, given), SizeName.SMALL) as context:
        outcome = judged_in(context, module())
    assert verdict(outcome) == expected
    assert (Code.FIXED_INPUTS.value in {each.code for each in outcome.findings}) is (expected[0] is Status.INCONCLUSIVE)
