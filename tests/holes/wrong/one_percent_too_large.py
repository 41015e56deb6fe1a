# problem: rms_norm_bf16
# device: cpu
# expected: wrong_result
"""Each output is 1 % too large: two units of the last place, all in one direction."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, hidden_size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden_size).bfloat16())
        self.eps = eps

    def forward(self, x):
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * scale * self.weight.float() * 1.01).bfloat16()
