# problem: product_over_its_mean
# device: cpu
# expected: correct
"""Four fp32 sums of a quarter of the terms."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        parts = zip(a.chunk(4, 1), b.chunk(4, 0), strict=True)
        product = sum(left @ right for left, right in parts)
        return product / product.mean()
