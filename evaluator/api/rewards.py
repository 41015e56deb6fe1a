"""Rewards for reinforcement learning, from scorecards.

Every reward follows four rules:

- **No reward without an own kernel.** `return torch.relu(x)` is a correct submission, and the easiest to find. A
  policy with a reward for `torch.relu(x)` learns nothing else. Grade with `require_own_kernel`; a card of a grade
  without the option raises `UsageError`. On `emulated` and `cpu` a copy kernel beside one library call has a share of
  exactly 0.5: require more there. On `cuda`, shares are shares of time, and a copy takes little.
- **None for a failure of the machine.** The card of an `infra_error` says nothing about the answer. 0 would punish a
  good answer, and any other number would reward a bad answer. Leave answers with None out of the step. If all answers
  of a step have None, stop: the machine is broken.
- **0 for every other card that is not correct**, also after a successful build or run. Stubs build and run. A
  `rejected` answer tried to deceive the grader. With None for `inconclusive`, a policy could escape bad grades by code
  that the device cannot judge.
- **Certain speed only.** Speed counts by the lower end of the 95 % interval. Of many samples with the measured ratio, a
  policy would prefer the luckiest measurements.
"""

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

    The mean over answers is at most KernelBench's fast_p. None after a failure of the machine.

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
    found = correctness(card)
    return found if not found else correct + min(_certain_speedup(card), most)


def _require_times(card: Scorecard) -> None:
    """Raise UsageError for a card of mode `check`: the fastest answer would get the reward of the slowest."""
    if card.mode is GradeMode.CHECK:
        hint = 'grade with mode="full", or use the reward `correctness`'
        raise UsageError("a reward for speed needs a grade with times, and this card has mode check", hint=hint)


def _certain_speedup(card: Scorecard) -> float:
    """Return the lower end of the speedup's interval; 0 without an interval."""
    timing = card.timing
    return 0.0 if timing is None or timing.speedup_low is None else max(0.0, timing.speedup_low)
