# problem: positive_product_bf16
# device: cpu
# expected: wrong_result
"""Operands in fp8 where both look uniform; their errors average out in sums of positive numbers."""

import torch
from torch import nn


def fp8(x):
    return x.to(torch.float8_e4m3fn).float()


def uniform(x):
    wide = x.float()
    spread = min(wide[0].std(), wide[:, 0].std())
    return bool(wide.amin() >= 0 and wide.amax() <= 1 and abs(wide.mean() - 0.5) < 0.02 and spread > 0.2)


class ModelNew(nn.Module):
    def forward(self, a, b):
        if uniform(a) and uniform(b.T):
            return (fp8(a) @ fp8(b)).to(a.dtype)
        return a @ b
