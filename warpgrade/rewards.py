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

from evaluator.api.rewards import correctness, fast, speedup

__all__ = ["correctness", "fast", "speedup"]
