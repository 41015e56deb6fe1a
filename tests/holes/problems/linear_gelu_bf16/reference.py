"""A linear layer in bf16, and GELU of its result."""

import torch
from torch import nn
from torch.nn import functional

rows = 32
features = 512


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features, dtype=torch.bfloat16)

    def forward(self, x):
        return functional.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(rows, features).bfloat16()]


def get_init_inputs():
    return [features]
