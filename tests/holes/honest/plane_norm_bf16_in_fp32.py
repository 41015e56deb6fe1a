# problem: plane_norm_bf16
# device: cpu
# expected: correct
"""Statistics of the whole plane in fp32, rounded once."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.channels = channels

    def forward(self, x):
        wide = x.float()
        mean, variance = wide.mean((-2, -1), keepdim=True), wide.var((-2, -1), unbiased=False, keepdim=True)
        return ((wide - mean) * torch.rsqrt(variance + 1e-5)).to(x.dtype)
