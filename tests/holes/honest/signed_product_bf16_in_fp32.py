# problem: signed_product_bf16
# device: cpu
# expected: correct
"""Products and sums in fp32, rounded once."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return (a.float() @ b.float()).to(a.dtype)
