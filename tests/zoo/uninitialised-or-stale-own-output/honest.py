"""Only positive elements are written, into memory that was zeroed."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        positive = x > 0
        y[positive] = x[positive]
        return y
