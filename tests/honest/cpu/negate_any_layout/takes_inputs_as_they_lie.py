"""Reads its input where it lies, and writes a contiguous output."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape, dtype=x.dtype)
        return torch.neg(x, out=out)
