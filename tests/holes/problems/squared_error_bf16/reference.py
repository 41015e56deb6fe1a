"""A mean squared error of independent bf16 tensors."""

import torch
from torch import nn
from torch.nn import functional

rows = 1024
columns = 512


class Model(nn.Module):
    def forward(self, given, wanted):
        return functional.mse_loss(given, wanted)


def get_inputs():
    return [torch.randn(rows, columns).bfloat16(), torch.randn(rows, columns).bfloat16()]


def get_init_inputs():
    return []
