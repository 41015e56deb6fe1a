"""Rewards for reinforcement learning, from scorecards; `warpgrade/rewards.py` gives the reasons for their shape."""

from evaluator.errors import UsageError
from evaluator.records import GradeMode, Scorecard, Status

_HINT = "grade with require_own_kernel=0.6, or another share; see docs/own_kernels.md"


def correctness(card: Scorecard) -> float | None:
    """Return 1 for a correct submission, 0 for any other, None after a failure of the machine.

    A reward for the first phase of training, or for devices without a clock.

    Raises:
        UsageError: the grade did not require own kernels.
    """
    if card.required_own_kernel is None:
        raise UsageError("a reward needs a grade that requires own kernels", hint=_HINT)
    match card.status:
        case Status.INFRA_ERROR:
            return None
        case Status.CORRECT:
            return 1.0
        case _:
            return 0.0


def fast(card: Scorecard, p: float = 1.0) -> float | None:
    """Return 1 for a correct submission that is certainly more than `p` times as fast as the reference, else 0.

    Certain is an interval above `p`, also of a speedup that is too uncertain to be quoted (T303). Over answers with a
    quoted speedup, the mean is at most the report's fast_p, which leaves unquoted speedups out. None after a failure of
    the machine.

    Raises:
        UsageError: the grade did not require own kernels, or had mode `check`.
    """
    _require_times(card)
    correct = correctness(card)
    return correct if not correct else float(_certain_speedup(card) > p)


def speedup(card: Scorecard, *, correct: float = 0.3, most: float = 10.0) -> float | None:
    """Return `correct` plus the certain speedup of a correct submission, up to `correct + most`.

    `correct` is the reward for correctness alone: an answer below the reference's speed is still worth more than a
    wrong answer. `most` bounds the reward, because a reference with a slow algorithm allows a speedup of 1000, and a
    problem with a slow reference would outweigh all other problems. On a device without a clock, the reward is
    `correct`.

    Raises:
        UsageError: the grade did not require own kernels, or had mode `check`.
    """
    _require_times(card)
    reward = correctness(card)
    return reward if not reward else correct + min(_certain_speedup(card), most)


def _require_times(card: Scorecard) -> None:
    """Raise UsageError for a card of mode `check`: the fastest answer would get the reward of the slowest."""
    if card.mode is GradeMode.CHECK:
        hint = 'grade with mode="full", or use the reward `correctness`'
        raise UsageError("a reward for speed needs a grade with times, and this card has mode check", hint=hint)


def _certain_speedup(card: Scorecard) -> float:
    """Return the lower end of the speedup's interval, of several cases that of the score; 0 without an interval.

    The lower end is certain also where the interval has no upper end, because the clock cannot tell the submission from
    an empty call.
    """
    return max(0.0, card.quoted.low or 0.0)
