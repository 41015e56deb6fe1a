# problem: unit_rows
# device: cpu
# expected: correct
"""The guard that PyTorch documents."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x / x.square().sum(1, keepdim=True).sqrt().clamp(min=1e-12)
