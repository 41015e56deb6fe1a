"""The first call tries several ways and keeps the fastest, which takes a second."""

import time

import torch
from torch import nn


def plain(x):
    return torch.softmax(x, dim=-1)


def by_hand(x):
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.best = None

    def forward(self, x):
        if self.best is None:
            took = {}
            for way in (plain, by_hand):
                began = time.perf_counter()
                for _ in range(3):
                    way(x)
                took[way] = time.perf_counter() - began
            time.sleep(1.0)
            self.best = min(took, key=took.get)
        return self.best(x)
