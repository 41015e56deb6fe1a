# problem: running_product
# device: cpu
# expected: correct
"""One multiplication after another."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.clone()
        for column in range(1, x.shape[1]):
            y[:, column] *= y[:, column - 1]
        return y
