# problem: linear_gelu_bf16
# device: cpu
# expected: correct
"""GELU of the sum in fp32, rounded once."""

import torch
from torch import nn
from torch.nn import functional


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features, dtype=torch.bfloat16)

    def forward(self, x):
        linear = functional.linear(x.float(), self.linear.weight.float(), self.linear.bias.float())
        return functional.gelu(linear).to(x.dtype)
