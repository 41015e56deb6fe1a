"""A matrix with noise added to it."""

import torch
from torch import nn

size = 1024


class Model(nn.Module):
    """Add a tenth of standard normal noise to `x`."""

    def forward(self, x):
        return x + 0.1 * torch.randn(x.shape, device=x.device)


def get_inputs():
    return [torch.randn(size, size)]


def get_init_inputs():
    return []
