"""Equal seeds in judge and runner: equal numbers of all generators that a problem may use."""

import random

import numpy as np
import torch

from evaluator.protocol.seeding import seed_torch


def drawn(seed):
    seed_torch(seed)
    return torch.rand(()).item(), np.random.rand(), random.random()


def test_one_seed_decides_about_all_generators():
    assert drawn(1 << 40) == drawn(1 << 40)
    assert not set(drawn(1)) & set(drawn(2))
