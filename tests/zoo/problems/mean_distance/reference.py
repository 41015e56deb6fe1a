"""How far apart two lists of positive numbers are."""

import torch
from torch import nn

rows = 65536


class Model(nn.Module):
    """Averages the squares of their differences."""

    def forward(self, a, b):
        return nn.functional.mse_loss(a, b)


def get_inputs():
    return [torch.rand(rows, 128), torch.rand(rows, 128)]


def get_init_inputs():
    return []
