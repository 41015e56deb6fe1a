# problem: distance_to_means
# device: cpu
# expected: correct
"""The mean of the means of rows."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        return (x - y.mean(1, keepdim=True)).square().mean(1).mean()
