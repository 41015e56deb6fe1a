"""KernelBench's opinion on a card: what its rule accepts and Warpgrade refuses, and the other way round."""

from evaluator.cards.replay import differences
from evaluator.findings import Code
from evaluator.records import Profile, SizeName, Status
from tests.grading.harness import module
from tests.grading.judged import context_of, judged
from tests.unit.references import problem

ROUNDED = "((x + 1e4) - 1e4, x * 2)"
"""The reference itself rounds to steps of 1e-3."""


def test_an_answer_more_exact_than_the_reference():
    with context_of(problem(ROUNDED, "torch.rand(64, 256)"), SizeName.SMALL) as context:
        outcome = judged(context, module(forward=["return x.clone(), x * 2"]))
    assert outcome.status is Status.CORRECT, outcome.reason
    for check in outcome.checks:
        assert check.benchmark_ok is (False if check.profile is Profile.AS_GIVEN else None)


def test_another_shape_is_refused_by_both_rules_and_a_crash_has_no_opinion(grade):
    run = grade(module(forward=["return torch.relu(x)[None]"]))
    assert run.assert_verdict(Status.WRONG_RESULT, Code.WRONG_SHAPE).benchmark_correct is False
    assert "KernelBench" not in run.out
    crash = grade(module(init=["self.calls = 0"], forward=["self.calls += 1", "return x.relu() + [0][self.calls - 1]"]))
    assert crash.assert_verdict(Status.RUNTIME_ERROR, Code.FORWARD_FAILED).benchmark_correct is None


def test_a_replay_has_the_same_opinion(grade):
    run = grade(module(forward=["return torch.relu(x) + 5e-5"]))
    card = run.assert_verdict(Status.WRONG_RESULT, Code.WRONG_VALUES)
    assert (card.benchmark_correct, run.code) == (True, 1)
    assert "KernelBench    correct by its own rule" in run.out
    again = grade(None, "--replay", run.folder / "card.json").assert_verdict(Status.WRONG_RESULT, Code.WRONG_VALUES)
    assert (again.benchmark_correct, differences(run.card, again)) == (True, [])
