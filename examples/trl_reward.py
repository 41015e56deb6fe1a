"""Reward function for TRL's GRPOTrainer. The data set has the columns `prompt` and `problem`.

trainer = GRPOTrainer(model, reward_funcs=kernel_reward, train_dataset=dataset, args=config)

TRL leaves a completion with the reward None out of the step, if no other reward function pays for it.
"""

import functools

from warpgrade import Candidate, Grader, rewards

# Own problems: "problems": "FOLDER". Without a GPU: "device": "emulated", and `rewards.correctness` below.
OPTIONS = {"require_own_kernel": 0.6, "timeout_s": 10.0}


@functools.cache
def grader() -> Grader:
    """Return the grader of this process; its workers end with the process."""
    return Grader(**OPTIONS).start()


def text_of(completion) -> str:
    """Return the text of a completion: a string, or a conversation."""
    return completion if isinstance(completion, str) else completion[-1]["content"]


def kernel_reward(completions, problem, **columns) -> list[float | None]:
    """Return the reward of each completion; None after a failure of the machine."""
    candidates = [Candidate(name, text_of(each)) for name, each in zip(problem, completions, strict=True)]
    paid = [rewards.speedup(card) for card in grader().grade_many(candidates)]
    if paid and all(reward is None for reward in paid):
        raise RuntimeError("the machine grades nothing: see `warpgrade doctor`")
    return paid
