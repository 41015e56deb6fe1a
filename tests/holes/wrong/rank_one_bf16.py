# problem: positive_product_bf16
# device: cpu
# expected: wrong_result
"""Row sums times column sums over the number of terms."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return (a.float().sum(1, keepdim=True) * b.float().sum(0) / a.shape[1]).to(a.dtype)
