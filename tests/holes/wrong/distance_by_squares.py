# problem: distance_of_pairs
# device: cpu
# expected: wrong_result
"""Squares less twice the product, which cancels where the rows are near each other."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        squares = x.square().sum(1) + y.square().sum(1)
        return (squares - 2 * (x * y).sum(1)).sqrt()
