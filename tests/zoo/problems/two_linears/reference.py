"""Two linear layers, one after the other."""

import torch
from torch import nn

size = 1024
batch_size = 256


class Model(nn.Module):
    """Apply two linear layers."""

    def __init__(self):
        super().__init__()
        self.one = nn.Linear(size, size)
        self.two = nn.Linear(size, size)

    def forward(self, x):
        return self.two(self.one(x))


def get_inputs():
    return [torch.randn(batch_size, size)]


def get_init_inputs():
    return []
