# problem: linear_gelu_bf16
# device: cpu
# expected: correct
"""The sum in fp32, rounded, and its GELU in fp32, rounded."""

import torch
from torch import nn
from torch.nn import functional


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features, dtype=torch.bfloat16)

    def forward(self, x):
        linear = functional.linear(x.float(), self.linear.weight.float(), self.linear.bias.float()).to(x.dtype)
        return functional.gelu(linear.float()).to(x.dtype)
