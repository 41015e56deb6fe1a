"""Equal seeds in judge and runner: equal numbers of all generators that a problem may use."""

import random

import numpy as np
import torch

from evaluator.protocol.model_call import seed_all, seed_torch


def drawn(seed):
    seed_all(seed)
    return torch.rand(()).item(), np.random.rand(), random.random()


def test_one_seed_decides_about_all_generators():
    assert drawn(1 << 40) == drawn(1 << 40)
    assert not set(drawn(1)) & set(drawn(2))


def test_before_a_call_only_pytorch_is_seeded():
    seed_torch(1)
    first = torch.rand(()).item(), np.random.rand(), random.random()
    seed_torch(1)
    second = torch.rand(()).item(), np.random.rand(), random.random()
    assert first[0] == second[0]
    assert first[1] != second[1]
    assert first[2] != second[2]
