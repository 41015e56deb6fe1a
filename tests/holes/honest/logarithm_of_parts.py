# problem: logarithm_of_product
# device: cpu
# expected: correct
"""The logarithm of four fp32 sums of a quarter of the terms."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        parts = zip(a.chunk(4, 1), b.chunk(4, 0), strict=True)
        return sum(left @ right for left, right in parts).log()
