# problem: row_sums_bf16
# device: cpu
# expected: correct
"""64 partial sums of each row in fp32, rounded once."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.float().unflatten(1, (64, -1)).sum(2).sum(1).to(x.dtype)
