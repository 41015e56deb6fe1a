"""Order of the tries of a submission: as constructed, in training mode, with its own weights."""

import itertools
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from evaluator.findings import Code, finding
from evaluator.judge import stages
from evaluator.judge.checked_calls import Called
from evaluator.records import Fault, Mode, Status
from tests.unit.judge.grades import Grade

WRONG = Fault(Status.WRONG_RESULT, finding(Code.WRONG_VALUES, "wrong"))
FAILED = Fault(Status.RUNTIME_ERROR, finding(Code.FORWARD_FAILED, "failed"))
FEWER_BITS = Fault(Status.WRONG_RESULT, finding(Code.LOWER_PRECISION, "fewer bits"))
RACE = Fault(Status.WRONG_RESULT, finding(Code.DIFFERS, "a race"))
CONSTRUCTED, TRAINING, SEEDED = (False, False), (True, False), (False, True)


def tries_of(
    monkeypatch, right=None, *, fault=WRONG, mode=Mode.TRAIN, partly=True, depends=True, assumed=True, left_s=100.0
):
    """Return the tries, as (in training, with own weights), the last remarks, and whether the answers are right.

    The first try takes 4 s, and did not come to calls of 6 s: another may take 10 s.
    """
    clock = itertools.count(step=4.0)
    monkeypatch.setattr(stages, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    grade, tries = Grade(), []
    grade.terms = grade.terms._replace(problem=replace(grade.terms.problem, mode=mode))
    grade.deadline, grade.in_training, grade.seeded_because = SimpleNamespace(left_s=left_s), False, None

    def called(context, *_, **__):
        tries.append((context.in_training, context.seeded_because is not None))
        found = None if tries[-1] == right else fault
        pairs = {"weight": "gamma"} if assumed else {}
        return Called(None, [], found, [], assumed=pairs, more_s=6.0, partly_in_evaluation=partly)

    monkeypatch.setattr(stages, "depends_on_mode", lambda *_: depends)
    monkeypatch.setattr(stages, "checked_calls", called)
    checked = grade.checked()
    return tries, [(each.code, each.message) for each in checked.findings], checked.fault is None


def test_right_answers_are_tried_once(monkeypatch):
    assert tries_of(monkeypatch, CONSTRUCTED) == ([CONSTRUCTED], [], True)


@pytest.mark.parametrize("code", [Code.WRONG_VALUES, Code.NOT_FINITE, Code.WRONG_ON_OTHER_VALUES])
def test_training_mode_comes_first(monkeypatch, code):
    fault = Fault(Status.WRONG_RESULT, finding(code, "wrong"))
    told = (Code.SET_TO_TRAINING.value, f"right after train(), wrong as constructed ({code.value}): wrong")
    assert tries_of(monkeypatch, TRAINING, fault=fault) == ([CONSTRUCTED, TRAINING], [told], True)


def test_own_weights_are_tried_as_constructed(monkeypatch):
    assert tries_of(monkeypatch, SEEDED) == ([CONSTRUCTED, TRAINING, SEEDED], [], True)


def test_the_first_verdict_stands_if_no_try_is_right(monkeypatch):
    assert tries_of(monkeypatch) == ([CONSTRUCTED, TRAINING, SEEDED], [], False)


@pytest.mark.parametrize(
    "given",
    [
        {"partly": False},
        {"depends": False},
        {"mode": Mode.EVAL},
        {"fault": FAILED},
        {"fault": FEWER_BITS},
        {"fault": RACE},
    ],
    ids=["no eval()", "no norm", "eval", "failure", "fewer bits", "race"],
)
def test_train_is_tried_only_where_wrong_values_may_come_from_eval(monkeypatch, given):
    assert TRAINING not in tries_of(monkeypatch, **given)[0]


def test_no_other_try_starts_near_the_deadline(monkeypatch):
    assert tries_of(monkeypatch, left_s=9.0) == ([CONSTRUCTED], [], False)
    assert tries_of(monkeypatch, SEEDED, left_s=11.0) == ([CONSTRUCTED, TRAINING, SEEDED], [], True)
