# problem: unit_rows
# device: cpu
# expected: wrong_result
"""No guard against a length of 0."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x / x.square().sum(1, keepdim=True).sqrt()
