"""A toy of GRPO: the policy draws answers from a folder, and learns which of them pay.

python examples/toy_policy.py solutions/relu relu --device cuda --steps 20

Rewards come through the interface of TRL (`trl_reward.py`). An answer without a reward (None, after a failure of the
machine) takes no part in its group.
"""

import argparse
import math
import random
import statistics
from collections.abc import Callable
from pathlib import Path

Reward = Callable[..., list[float | None]]

FALLBACK = """
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, *arguments):
        super().__init__()

    def forward(self, x):
        return torch.relu(x)
"""


def train(answers: dict[str, str], problem: str, kernel_reward: Reward, *, steps: int, group: int, seed: int = 0):
    """Return the probability of each answer after training, and the number of answers without a reward."""
    draw = random.Random(seed)
    preferences = dict.fromkeys(answers, 0.0)
    lost = 0
    for step in range(steps):
        names = draw.choices(list(answers), weights=probabilities(preferences).values(), k=group)
        paid = kernel_reward([answers[name] for name in names], problem=[problem] * group)
        known = [reward for reward in paid if reward is not None]
        lost += len(paid) - len(known)
        mean, spread = statistics.fmean(known), statistics.pstdev(known)
        for name, reward in zip(names, paid, strict=True):
            if reward is not None:
                preferences[name] += 0.1 * (reward - mean) / (spread + 1e-4)
        print(f"step {step + 1}: mean reward {mean:.2f}", flush=True)
    return probabilities(preferences), lost


def probabilities(preferences: dict[str, float]) -> dict[str, float]:
    """Return the softmax of preferences."""
    weights = {name: math.exp(value) for name, value in preferences.items()}
    return {name: weight / sum(weights.values()) for name, weight in weights.items()}


def main() -> None:
    """Train on a folder of answers, with PyTorch's own function and no answer at all among them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("problem")
    parser.add_argument("--device")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--group", type=int, default=16)
    given = parser.parse_args()
    import trl_reward  # beside this file

    trl_reward.OPTIONS["device"] = given.device
    answers = {path.name: path.read_text(encoding="utf-8") for path in sorted(given.folder.glob("*.py"))}
    answers |= {"torch.relu": FALLBACK, "no answer": "I cannot write this kernel."}
    found, lost = train(answers, given.problem, trl_reward.kernel_reward, steps=given.steps, group=given.group)
    for name, share in sorted(found.items(), key=lambda each: -each[1]):
        print(f"{share:6.1%}  {name}")
    print(f"{given.steps * given.group} answers, {lost} without a reward")


if __name__ == "__main__":
    main()
