"""`Run.verdict` is the assertion of most tests of grades: a card with another verdict fails it."""

import pytest

from evaluator.findings import Code, finding
from evaluator.records import Status
from tests import cards
from tests.grading.harness import Run


@pytest.mark.parametrize(
    ("status", "code"),
    [(Status.CORRECT, None), (Status.WRONG_RESULT, Code.WRONG_SHAPE), (Status.RUNTIME_ERROR, Code.WRONG_VALUES)],
)
def test_another_verdict_fails(status, code, tmp_path):
    card = cards.card(status=Status.WRONG_RESULT, reason=finding(Code.WRONG_VALUES, "output: 1 of 2 values differ"))
    run = Run(1, "", "", card, tmp_path)
    assert run.assert_verdict(Status.WRONG_RESULT, Code.WRONG_VALUES) is card
    with pytest.raises(AssertionError):
        run.assert_verdict(status, code)


def test_no_card_fails(tmp_path):
    with pytest.raises(AssertionError, match="no such problem"):
        Run(2, "", "no such problem", None, tmp_path).assert_verdict(Status.CORRECT)
