"""The sum over the middle dimension of a three-dimensional tensor."""

import torch
from torch import nn

batch_size = 96
rows = 4096
columns = 4096
reduced_dim = 1


class Model(nn.Module):
    """Sums over one dimension, which it drops."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sum(x, dim=self.dim)


def get_inputs():
    return [torch.randn(batch_size, rows, columns)]


def get_init_inputs():
    return [reduced_dim]
