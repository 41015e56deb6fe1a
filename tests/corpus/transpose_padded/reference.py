"""A matrix transposed in memory."""

import torch
from torch import nn

height = 8192
width = 12288


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.t().contiguous()


def get_inputs():
    return [torch.randn(height, width)]


def get_init_inputs():
    return []
