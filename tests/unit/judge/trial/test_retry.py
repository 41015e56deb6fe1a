"""A wrong answer is repeated: for a race, for earlier weights, and with the problem's own values."""

import itertools
from types import SimpleNamespace

import pytest
from torch.nn import functional

from benchmarks.numerics.judged_answers import AnswerTrials, set_up
from evaluator.findings import Code, finding
from evaluator.findings.comparing import CONSTANT, WEIGHTS_IN_EACH_CALL
from evaluator.judge.answer.other_values import wrong_for
from evaluator.judge.compare.tensor_comparison import begin
from evaluator.judge.numerics.precision_sampler import ErrorSample
from evaluator.judge.trial import retry
from evaluator.judge.trial.retry import retried
from evaluator.judge.trial.trial import EarlierWeightsTrial, Trial
from evaluator.protocol import model_call
from evaluator.records import Fault, Profile, SizeName, Status
from tests.unit.judge.trial.test_stale_weights import check as tensor_check
from tests.unit.references import problem

OWN_SEED, OTHER_SEED = 5, 9


def trial(code, message="output: 1 of 2 values differ", *, tensors=(), bits=b"", **details):
    fault = None if code is None else Fault(Status.WRONG_RESULT, finding(code, message, **details))
    check = SimpleNamespace(schedule=None, tensors=[*tensors])
    return Trial(check, fault, 1.0, copied=False, some_bits=bits)


class Runner:
    """A runner that answers a call like `wrong`, one with the problem's own values like `own`.

    `earlier` are its answers with earlier weights, the constructed ones or those of `seed`.
    """

    def __init__(self, wrong, own=None, earlier=(), seed=None, takes=lambda: None, weights=1):
        self._answers = {OTHER_SEED: wrong, OWN_SEED: own or wrong}
        self._earlier, self._takes = list(earlier), takes
        self.earlier_weights = [SimpleNamespace(seed=seed)] * (weights if earlier else 0)

    def run(self, index, seed, **_):
        self._takes()
        return self._answers[seed]

    def run_with_weights(self, *_, **__):
        self._takes()
        return self._earlier.pop(0)

    def own_values_seed(self):
        return OWN_SEED

    def fault(self, **how):
        """Return the fault after the retry of the wrong call."""
        return retried(self, self._answers[OTHER_SEED], 1, OTHER_SEED, itertools.repeat(None), 1.0, **how)[0]


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
    fault = Runner(trial(Code.WRONG_ON_OTHER_VALUES), trial(with_own_values)).fault()
    assert fault.finding.code == reported.value


@pytest.mark.parametrize(("call_s", "calls"), [(0.1, 5), (0.45, 5), (0.6, 4), (0.9, 3), (1.5, 2), (30.0, 1)])
def test_no_cause_is_looked_for_after_the_time_for_it(monkeypatch, call_s, calls):
    """Three repetitions are the race's, and the fourth and fifth call have earlier weights."""
    asked = itertools.count()
    clock = [0.0]

    def takes():
        next(asked)
        clock[0] += call_s

    monkeypatch.setattr(retry, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    wrong = trial(Code.WRONG_VALUES)
    runner = Runner(wrong, earlier=[None, None], takes=takes, weights=2)
    assert runner.fault(search_s=2.0) == wrong.fault
    assert next(asked) == calls


def test_no_part_of_the_search_begins_after_its_time(monkeypatch):
    """Neither a second call with the constructed weights, nor one with the problem's own values."""
    clock, begun_s = [0.0], []

    def takes():
        begun_s.append(clock[0])
        clock[0] += 0.6

    monkeypatch.setattr(retry, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    earlier = [EarlierWeightsTrial([], [], True, b"other")] * 2
    wrong = trial(Code.WRONG_ON_OTHER_VALUES, tensors=[tensor_check(3000.0, 9)])
    runner = Runner(wrong, trial(Code.WRONG_VALUES), earlier, takes=takes)
    assert runner.fault(search_s=2.0) == wrong.fault
    assert begun_s == pytest.approx([0.0, 0.6, 1.2, 1.8])


def test_stale_weights_are_wrong_for_all_values(monkeypatch):
    monkeypatch.setattr(retry, "is_stale", lambda *_: True)
    said = f"{wrong_for('outliers')}output: 1 of 2 values differ"
    wrong = trial(Code.WRONG_ON_OTHER_VALUES, said, path="output", profile="outliers")
    fault = Runner(wrong, earlier=[EarlierWeightsTrial([], [])]).fault()
    assert fault.finding.message == "correct for earlier weights, wrong for this call's: output: 1 of 2 values differ"


@pytest.mark.parametrize(("is_right", "code"), [(True, Code.STALE_WEIGHTS), (False, Code.WRONG_VALUES)])
def test_only_a_right_answer_proves_stale_weights(monkeypatch, is_right, code):
    monkeypatch.setattr(retry, "is_stale", lambda *_: True)
    earlier = EarlierWeightsTrial([], [], is_right, b"other")
    assert Runner(trial(Code.WRONG_VALUES), earlier=[earlier]).fault().finding.code == code.value


@pytest.mark.parametrize("code", [Code.WRONG_VALUES, Code.WRONG_ON_OTHER_VALUES])
@pytest.mark.parametrize("own_step", [None, CONSTANT])
def test_what_is_told_of_weights_joins_the_message_and_takes_no_step_of_a_cause(monkeypatch, code, own_step):
    monkeypatch.setattr(retry, "is_nearer_to_earlier", lambda *_: True)
    wrong = trial(code, bits=b"same", next_step=own_step)
    fault = Runner(wrong, trial(None), [EarlierWeightsTrial([], [], False, b"same")]).fault()
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
    earlier = [EarlierWeightsTrial([], [], is_right, b"other") for is_right in answers]
    fault = Runner(trial(Code.WRONG_VALUES, tensors=[tensor_check(ratio, 9)]), None, earlier, seed).fault()
    assert fault.finding.message.endswith("with the weights as constructed, the answer is right") is is_told


class Answers:
    """Trials of a GELU whose answers are those of a function of the input."""

    def __init__(self, function):
        setup, self.compared = set_up(problem("F.gelu(x)", "torch.rand(64, 64)"), SizeName.SMALL, "cpu"), []

        def compare(*given):
            self.compared.append(given)
            return begin(*given)

        setup = setup._replace(compare=compare)
        self.trials = AnswerTrials(setup, lambda plan: model_call.Result(function(*plan.inputs.args), None))
        self.mix = setup.distribution_mix

    def wrong(self, profile):
        """Make a wrong call with values of `profile`, and return its trial, with fault and check after the retry."""
        seed = next(seed for seed in itertools.count() if self.mix.pick(seed) is profile)
        wrong = self.trials.run(1, seed, timeout_s=60)
        self.compared.clear()
        return wrong, *retried(self.trials, wrong, 1, seed, itertools.repeat(None), 60)


def test_the_call_that_confirms_a_wrong_answer_is_explained_too():
    """The first wrong call had other values; the reported one has the problem's own, and few wrong elements."""
    wrong, fault, check = Answers(lambda x: functional.gelu(x, approximate="tanh")).wrong(Profile.SIGNED_NORMAL)
    assert (fault.finding.code, check.profile) == (Code.WRONG_VALUES.value, Profile.AS_GIVEN)
    assert "GELU's other form" in wrong.fault.finding.message
    assert "GELU's other form" in fault.finding.message


def test_a_kind_of_values_is_explained_once(monkeypatch):
    """Each search for a cause takes several forwards of the reference."""
    searched = []
    monkeypatch.setattr(
        "evaluator.judge.trial.trial_runner.cause_of", lambda plan, *_: searched.append(plan.profile) or None
    )
    trials = Answers(lambda x: x * 2).trials
    for index in range(20):
        trials.run(index, index, timeout_s=60)
    assert len(searched) == 2
    assert Profile.AS_GIVEN in searched


def test_a_repeated_call_looks_for_no_cause(monkeypatch):
    """Of a wrong answer, nothing but the verdict of its repetitions is used: one with the same bits is wrong."""
    looked = []
    monkeypatch.setattr(ErrorSample, "lowered", lambda *_: looked.append(1) or None)
    answers = Answers(lambda x: x * 2)
    wrong, fault, _ = answers.wrong(Profile.AS_GIVEN)
    assert fault == wrong.fault
    assert (looked, answers.compared) == ([1], [])


def test_a_repeated_call_with_other_bits_is_compared():
    errors = iter([1e-2, 2e-2, 0.0])
    _, fault, check = Answers(lambda x: functional.gelu(x) + next(errors)).wrong(Profile.AS_GIVEN)
    assert fault.finding.code == Code.DIFFERS.value
    assert check.ok
