"""ReLU of a vector of odd length."""

import torch
from torch import nn

count = 16777219


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


def get_inputs():
    return [torch.randn(count)]


def get_init_inputs():
    return []
