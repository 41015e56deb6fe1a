# problem: at_least_half
# device: cpu
# expected: wrong_result
"""A half itself is taken for less."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x > 0.5
