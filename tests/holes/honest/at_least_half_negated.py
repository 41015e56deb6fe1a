# problem: at_least_half
# device: cpu
# expected: correct
"""Not below one half."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return ~(x < 0.5)
