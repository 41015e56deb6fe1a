"""Rewards: an own kernel is required, a failure of the machine pays nothing and costs nothing."""

import msgspec
import pytest

from evaluator.findings import Code, finding
from evaluator.records import GradeMode, Status
from tests import cards
from warpgrade import UsageError, rewards

REWARDS = [rewards.correctness, rewards.fast, rewards.speedup]
NOT_CORRECT = [status for status in Status if status not in (Status.CORRECT, Status.INFRA_ERROR)]


def graded(**changes):
    return cards.card(**{"required_own_kernel": 0.5} | changes)


def timed(low, value=2.0):
    return msgspec.structs.replace(cards.timing(), speedup=value, speedup_low=low)


@pytest.mark.parametrize("reward", REWARDS)
def test_a_grade_without_a_required_own_kernel_pays_nothing_to_anybody(reward):
    for card in (cards.card(), cards.wrong_card(), cards.card(status=Status.INFRA_ERROR)):
        with pytest.raises(UsageError, match="requires own kernels") as raised:
            reward(card)
        assert "require_own_kernel" in raised.value.hint


@pytest.mark.parametrize("reward", REWARDS)
def test_a_failure_of_the_machine_is_masked(reward):
    failed = finding(Code.JUDGE_FAILED, "the disk is full")
    assert reward(graded(status=Status.INFRA_ERROR, reason=failed, timing=None)) is None


@pytest.mark.parametrize("reward", REWARDS)
@pytest.mark.parametrize("status", NOT_CORRECT)
def test_whatever_is_not_correct_pays_exactly_nothing(reward, status):
    """Even a card with a build, passed checks and fast times: a stub and a cheat have these too."""
    assert reward(graded(status=status, reason=finding(Code.OWN_SHARE_UNKNOWN, "unknown"))) == 0.0


@pytest.mark.parametrize("reward", [rewards.fast, rewards.speedup])
@pytest.mark.parametrize("status", [Status.CORRECT, Status.WRONG_RESULT, Status.INFRA_ERROR])
def test_a_reward_for_speed_needs_a_grade_with_times(reward, status):
    card = graded(mode=GradeMode.CHECK, timing=None, status=status)
    with pytest.raises(UsageError, match="this card has mode check"):
        reward(card)


def test_correctness_needs_no_times():
    assert rewards.correctness(graded(mode=GradeMode.CHECK, timing=None)) == 1.0


def test_speed_counts_by_the_lower_end_of_its_interval():
    assert rewards.speedup(graded(timing=timed(1.5))) == pytest.approx(0.3 + 1.5)
    assert rewards.speedup(graded(timing=timed(400.0)), correct=1.0, most=5.0) == 6.0
    assert rewards.fast(graded(timing=timed(1.01))) == 1.0
    assert rewards.fast(graded(timing=timed(0.99))) == 0.0
    assert rewards.fast(graded(timing=timed(1.01)), p=1.5) == 0.0


def test_an_unquoted_speedup_pays_by_the_lower_end():
    """Without an upper end too: else a policy would stop just above the error of the clock."""
    assert rewards.fast(graded(timing=timed(1.2, None))) == 1.0
    endless = msgspec.structs.replace(timed(1.2, None), speedup_low=7.0, speedup_high=None, significant=False)
    assert (rewards.fast(graded(timing=endless)), rewards.speedup(graded(timing=endless))) == (1.0, 7.3)


@pytest.mark.parametrize("timing", [None, timed(None, None)])
def test_unknown_speed_pays_for_correctness_alone(timing):
    card = graded(timing=timing)
    assert (rewards.correctness(card), rewards.fast(card), rewards.speedup(card)) == (1.0, 0.0, 0.3)


def test_a_slow_correct_answer_is_worth_more_than_a_wrong_one():
    assert rewards.speedup(graded(timing=timed(0.001))) > rewards.speedup(graded(status=Status.WRONG_RESULT))
