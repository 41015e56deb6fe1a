"""Rewards for reinforcement learning, from scorecards; `evaluator/api/rewards.py` gives the reasons for their shape."""

from evaluator.api.rewards import correctness, fast, speedup

__all__ = ["correctness", "fast", "speedup"]
