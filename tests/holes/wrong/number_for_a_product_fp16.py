# problem: positive_product_fp16
# device: cpu
# expected: wrong_result
"""The expected value of a sum of products of uniform numbers, everywhere."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a.new_full((a.shape[0], b.shape[1]), a.shape[1] / 4)
