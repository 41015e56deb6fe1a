"""ReLU of a matrix that fresh pages are mapped for."""

import torch
from torch import nn

batch_size = 2304
dim = 4096


class Model(nn.Module):
    """Clamps every element to zero from below."""

    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(batch_size, dim)]


def get_init_inputs():
    return []
