"""Reward function for verl: `reward.custom_reward_function.path=examples/verl_reward.py`, `.name=compute_score`.

`reward_model.ground_truth` of each row names the problem. verl masks no answer: a failure of the machine has the mean
reward of the problem so far, so that its expected advantage is 0, and `infra_error` counts such answers.
"""

import collections
import functools
import statistics

from warpgrade import Grader, InfraError, rewards

OPTIONS = {"require_own_kernel": 0.6, "timeout_s": 10.0}
_PAID: dict[str, collections.deque[float]] = collections.defaultdict(lambda: collections.deque(maxlen=256))


@functools.cache
def grader() -> Grader:
    """Return the grader of this process; its workers end with the process."""
    return Grader(**OPTIONS).start()


async def compute_score(data_source, solution_str, ground_truth, extra_info=None, **others) -> dict[str, float]:
    """Return the reward of one answer. Raises InfraError if the machine never graded an answer to the problem."""
    card = await grader().grade_async(ground_truth, solution_str)
    reward = rewards.speedup(card)
    if reward is not None:
        _PAID[ground_truth].append(reward)
        return {"score": reward, "acc": float(card.correct), "infra_error": 0.0}
    if not _PAID[ground_truth]:
        raise InfraError(f"the machine grades nothing: {card.reason.message}", hint="see `warpgrade doctor`")
    return {"score": statistics.fmean(_PAID[ground_truth]), "acc": 0.0, "infra_error": 1.0}
