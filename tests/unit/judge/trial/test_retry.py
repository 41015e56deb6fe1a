"""A wrong answer for other input values is confirmed by a call with the problem's own values."""

import itertools
from types import SimpleNamespace

import pytest
from torch.nn import functional

from benchmarks.numerics.judged_answers import AnswerTrials, set_up
from evaluator.findings import Code, finding
from evaluator.findings.comparing import CONSTANT, WEIGHTS_IN_EACH_CALL
from evaluator.judge.answer.answer_judge import AnswerJudge
from evaluator.judge.answer.other_values import wrong_for
from evaluator.judge.numerics.precision_sampler import ErrorSample
from evaluator.judge.trial import retry
from evaluator.judge.trial.retry import retried
from evaluator.judge.trial.trial import EarlierWeightsTrial, Trial
from evaluator.protocol import model_call
from evaluator.records import Fault, Profile, SizeName, Status
from tests.unit.judge.trial.test_stale_weights import check as stale_check
from tests.unit.references import problem

OWN_SEED, OTHER_SEED = 5, 9


def trial(code):
    fault = None if code is None else Fault(Status.WRONG_RESULT, finding(code, "output: 1 of 2 values differ"))
    return Trial(None, fault, 1.0, copied=False)


@pytest.mark.parametrize(
    ("with_own_values", "reported"),
    [
        (None, Code.WRONG_ON_OTHER_VALUES),
        (Code.WRONG_VALUES, Code.WRONG_VALUES),
        (Code.NOT_FINITE, Code.NOT_FINITE),
        (Code.TIMED_OUT, Code.WRONG_ON_OTHER_VALUES),
    ],
)
def test_wrong_for_other_values_alone_is_told_from_wrong_for_all(with_own_values, reported):
    answers = {OWN_SEED: trial(with_own_values), OTHER_SEED: trial(Code.WRONG_ON_OTHER_VALUES)}
    runner = SimpleNamespace(
        run=lambda _, seed, **__: answers[seed], own_values_seed=lambda: OWN_SEED, earlier_weights=[]
    )
    fault, _ = retried(runner, answers[OTHER_SEED], 1, OTHER_SEED, itertools.repeat(None), 1.0)
    assert fault.finding.code == reported.value


@pytest.mark.parametrize(("call_s", "calls"), [(0.1, 3), (0.9, 3), (1.5, 2), (30.0, 1)])
def test_no_cause_is_looked_for_after_the_time_for_it(monkeypatch, call_s, calls):
    now_s, asked = [0.0], []

    def run(*_, **__):
        asked.append(now_s[0])
        now_s[0] += call_s
        return trial(Code.WRONG_VALUES)

    monkeypatch.setattr(retry, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    causes = []
    monkeypatch.setattr(retry, "_weights_fault", lambda *_, **__: causes.append(now_s[0]))
    wrong = trial(Code.WRONG_VALUES)
    fault, _ = retried(SimpleNamespace(run=run), wrong, 1, OWN_SEED, itertools.repeat(None), 1.0, search_s=2.0)
    assert fault == wrong.fault
    assert len(asked) == calls
    assert bool(causes) is (calls * call_s <= 2.0)


def test_stale_weights_are_wrong_for_all_values(monkeypatch):
    monkeypatch.setattr(retry, "is_stale", lambda *_: True)
    message = f"{wrong_for('outliers')}output: 1 of 2 values differ"
    found = finding(Code.WRONG_ON_OTHER_VALUES, message, path="output", profile="outliers")
    check = SimpleNamespace(schedule=None, tensors=[])
    wrong = Trial(check, Fault(Status.WRONG_RESULT, found), 1.0, copied=False)
    runner = SimpleNamespace(
        run=lambda *_, **__: wrong,
        run_with_weights=lambda *_, **__: EarlierWeightsTrial([], []),
        earlier_weights=[None],
    )
    fault, _ = retried(runner, wrong, 1, OTHER_SEED, itertools.repeat(None), 1.0)
    assert fault.finding.message == "correct for earlier weights, wrong for this call's: output: 1 of 2 values differ"


def test_the_call_that_confirms_a_wrong_answer_is_explained_too():
    """The first wrong call had other values; the reported one has the problem's own, and few wrong elements."""
    setup = set_up(problem("F.gelu(x)", "torch.rand(64, 64)"), SizeName.SMALL, "cpu")
    mix = setup.distribution_mix

    def answer(plan):
        return model_call.Result(functional.gelu(*plan.inputs.args, approximate="tanh"), None)

    trials = AnswerTrials(setup, answer)
    seed = next(seed for seed in itertools.count() if mix.pick(seed) is Profile.SIGNED_NORMAL)
    wrong = trials.run(1, seed, timeout_s=60)
    fault, check = retried(trials, wrong, 1, seed, itertools.repeat(None), 60)
    assert (fault.finding.code, check.profile) == (Code.WRONG_VALUES.value, Profile.AS_GIVEN)
    assert "GELU's other form" in wrong.fault.finding.message
    assert "GELU's other form" in fault.finding.message


def test_a_kind_of_values_is_explained_once(monkeypatch):
    """Each search for a cause takes several forwards of the reference."""
    setup = set_up(problem("F.gelu(x)", "torch.rand(64, 64)"), SizeName.SMALL, "cpu")
    trials = AnswerTrials(setup, lambda plan: model_call.Result(plan.inputs.args[0] * 2, None))
    searched = []
    monkeypatch.setattr(
        "evaluator.judge.trial.trial_runner.cause_of", lambda plan, *_: searched.append(plan.profile) or None
    )
    for index in range(40):
        trials.run(index, index, timeout_s=60)
    assert len(searched) == 2
    assert Profile.AS_GIVEN in searched


def test_a_repeated_call_looks_for_no_cause(monkeypatch):
    """Of a wrong answer, nothing but the verdict of its repetitions is used."""
    setup = set_up(problem("F.gelu(x)", "torch.rand(64, 64)"), SizeName.SMALL, "cpu")
    trials = AnswerTrials(setup, lambda plan: model_call.Result(plan.inputs.args[0] * 2, None))
    looked = []
    monkeypatch.setattr(ErrorSample, "lowered", lambda *_: looked.append(1) or None)
    mix = setup.distribution_mix
    seed = next(seed for seed in itertools.count() if mix.pick(seed) is Profile.AS_GIVEN)
    wrong = trials.run(1, seed, timeout_s=60)
    compared = []
    monkeypatch.setattr(AnswerJudge, "_compared", lambda *_, **__: compared.append(1))
    fault, _ = retried(trials, wrong, 1, seed, itertools.repeat(None), 60)
    assert fault == wrong.fault
    assert looked == [1]
    assert not compared, "an answer with the bits of the wrong one is wrong"


def test_a_repeated_call_with_other_bits_is_compared():
    setup = set_up(problem("F.gelu(x)", "torch.rand(64, 64)"), SizeName.SMALL, "cpu")
    errors = iter([1e-2, 2e-2, 0.0])
    trials = AnswerTrials(
        setup, lambda plan: model_call.Result(functional.gelu(*plan.inputs.args) + next(errors), None)
    )
    mix = setup.distribution_mix
    seed = next(seed for seed in itertools.count() if mix.pick(seed) is Profile.AS_GIVEN)
    wrong = trials.run(1, seed, timeout_s=60)
    fault, check = retried(trials, wrong, 1, seed, itertools.repeat(None), 60)
    assert fault.finding.code == Code.DIFFERS.value
    assert check.ok


@pytest.mark.parametrize(("is_right", "code"), [(True, Code.STALE_WEIGHTS), (False, Code.WRONG_VALUES)])
def test_only_a_right_answer_proves_stale_weights(monkeypatch, is_right, code):
    monkeypatch.setattr(retry, "is_stale", lambda *_: True)
    check = SimpleNamespace(schedule=None, tensors=[])
    wrong = trial(Code.WRONG_VALUES)._replace(check=check)
    runner = SimpleNamespace(
        run=lambda *_, **__: wrong,
        run_with_weights=lambda *_, **__: EarlierWeightsTrial([], [], is_right, b"other"),
        earlier_weights=[SimpleNamespace(seed=None)],
    )
    fault, _ = retried(runner, wrong, 1, OTHER_SEED, itertools.repeat(None), 1.0)
    assert fault.finding.code == code.value


@pytest.mark.parametrize("code", [Code.WRONG_VALUES, Code.WRONG_ON_OTHER_VALUES])
@pytest.mark.parametrize("own_step", [None, CONSTANT])
def test_what_is_told_of_weights_joins_the_message_and_takes_no_step_of_a_cause(monkeypatch, code, own_step):
    monkeypatch.setattr(retry, "is_nearer_to_earlier", lambda *_: True)
    found = finding(code, "output: 1 of 2 values differ", next_step=own_step)
    check = SimpleNamespace(schedule=None, tensors=[])
    wrong = Trial(check, Fault(Status.WRONG_RESULT, found), 1.0, copied=False, some_bits=b"same")
    own = trial(None)  # correct with the problem's own values
    runner = SimpleNamespace(
        run=lambda _, seed, **__: wrong if seed == OTHER_SEED else own,
        run_with_weights=lambda *_, **__: EarlierWeightsTrial([], [], False, b"same"),
        earlier_weights=[SimpleNamespace(seed=None)],
        own_values_seed=lambda: OWN_SEED,
    )
    fault, _ = retried(runner, wrong, 1, OTHER_SEED, itertools.repeat(None), 1.0)
    assert fault.finding.code == code.value
    assert fault.finding.message == "output: 1 of 2 values differ; the answer is the same for earlier weights"
    assert fault.finding.next_step == (own_step or WEIGHTS_IN_EACH_CALL)


@pytest.mark.parametrize(
    ("ratio", "seed", "answers", "is_told"),
    [
        (3000.0, None, [True, True], True),
        (1.1, None, [True, True], False),  # right by chance
        (3000.0, 7, [True, True], False),  # weights of the first call, not the constructed ones
        (3000.0, None, [True, False], False),  # a race, right once
        (3000.0, None, [False, True], False),
    ],
)
def test_the_constructed_weights_are_named_if_their_answer_is_right_twice(ratio, seed, answers, is_told):
    wrong = trial(Code.WRONG_VALUES)._replace(check=SimpleNamespace(schedule=None, tensors=[stale_check(ratio, 9)]))
    left = [EarlierWeightsTrial([], [], is_right, b"other") for is_right in answers]
    runner = SimpleNamespace(
        run=lambda *_, **__: wrong,
        run_with_weights=lambda *_, **__: left.pop(0),
        earlier_weights=[SimpleNamespace(seed=seed)],
    )
    fault, _ = retried(runner, wrong, 1, OTHER_SEED, itertools.repeat(None), 1.0)
    assert fault.finding.message.endswith("with the weights as constructed, the answer is right") is is_told
