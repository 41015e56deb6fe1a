# problem: linear_gelu_bf16
# device: cpu
# expected: wrong_result
"""Operands in fp8, with a scale for each row."""

import torch
from torch import nn
from torch.nn import functional


def fp8(x):
    scale = x.float().abs().amax(-1, keepdim=True) / 448
    return (x.float() / scale).to(torch.float8_e4m3fn).float() * scale


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features, dtype=torch.bfloat16)

    def forward(self, x):
        linear = functional.linear(fp8(x), fp8(self.linear.weight), self.linear.bias.float())
        return functional.gelu(linear).to(x.dtype)
