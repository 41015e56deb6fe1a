"""A wrong answer for other input values is confirmed by a call with the problem's own values."""

import itertools
from types import SimpleNamespace

import pytest

from evaluator.findings import Code, finding
from evaluator.judge.trial.retry import retried
from evaluator.judge.trial.trial_runner import Trial
from evaluator.records import Fault, Status

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
