# problem: positive_product_fp16
# device: cpu
# expected: wrong_result
"""A quarter of the terms, times four."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        terms = a.shape[1] // 4
        return (a[:, :terms].float() @ b[:terms].float() * 4).to(a.dtype)
