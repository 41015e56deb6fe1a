# problem: running_product
# device: cpu
# expected: wrong_result
"""The first 64 columns alone: the rest is about e to the power of minus 64."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        y[:, :64] = x[:, :64].cumprod(dim=1)
        return y
