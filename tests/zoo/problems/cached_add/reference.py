"""Sum of two matrices."""

import torch
from torch import nn

rows = 1536
dim = 4096


class Model(nn.Module):
    """Add `x` and `y`, both (rows, dim)."""

    def forward(self, x, y):
        return x + y


def get_inputs():
    return [torch.randn(rows, dim), torch.randn(rows, dim)]


def get_init_inputs():
    return []
