# problem: distance_of_pairs
# device: cpu
# expected: correct
"""The root of the sum of squared differences."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        return (x - y).square().sum(1).sqrt()
