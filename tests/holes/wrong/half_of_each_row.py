# problem: row_sums_bf16
# device: cpu
# expected: wrong_result
"""The sum of every second element, twice."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (x[:, ::2].float().sum(1) * 2).to(x.dtype)
