"""Product of two matrices."""

import torch
from torch import nn

rows = 2048
inner = 4096
columns = 8192


class Model(nn.Module):
    """Multiply `a` (rows, inner) by `b` (inner, columns)."""

    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(rows, inner), torch.randn(inner, columns)]


def get_init_inputs():
    return []
