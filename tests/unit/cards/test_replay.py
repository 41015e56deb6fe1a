import pytest
from msgspec.structs import replace

from evaluator.cards.replay import changed_circumstances, differences
from evaluator.records import Status
from tests import cards


def check(index=0, error=0.25, **changes):
    return cards.check(index, tensors=[cards.tensor_check(error_ratio=error)], **changes)


@pytest.fixture
def card():
    return replace(cards.card(), checks=[check(0), check(1)])


def test_a_card_agrees_with_itself(card):
    assert differences(card, card) == []
    assert changed_circumstances(card, card) == []


def test_times_are_not_compared(card):
    assert differences(card, replace(card, timing=None, wall_s=1e6, stages_s={})) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"status": Status.WRONG_RESULT}, "status correct, now wrong_result"),
        ({"checks": [check(0)]}, "2 checks, now 1"),
        ({"checks": [check(0, ok=False), check(1)]}, "check 0 passed, now fails"),
        ({"checks": [check(0), check(1, error=0.5)]}, "check 1 has other errors"),
        ({"checks": [check(0), check(1, seed="0x0000000000000003")]}, "check 1 has another seed"),
    ],
)
def test_each_difference_is_told(card, change, words):
    assert words in differences(card, replace(card, **change))


def test_what_changed_around_it_is_told(card):
    after = replace(card, environment=replace(card.environment, torch="2.0.0", threads=99))
    assert changed_circumstances(card, after) == ["torch", "the number of threads"]
