"""Rows divided by their length, with PyTorch's guard against a length of 0."""

import torch
from torch import nn
from torch.nn import functional

rows = 128
columns = 512


class Model(nn.Module):
    def forward(self, x):
        return functional.normalize(x, dim=1)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
