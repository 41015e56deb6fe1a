"""A batch of matrix products with a bias."""

import torch
from torch import nn

batch_size = 64
rows = 512
inner = 1024
columns = 768


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.bmm(a, b.transpose(1, 2)) + bias


def get_inputs():
    a = torch.randn(batch_size, rows, inner)
    b = torch.randn(batch_size, columns, inner)
    return [a, b, torch.randn(columns)]


def get_init_inputs():
    return []
