# problem: signed_product_fp16
# device: cpu
# expected: wrong_result
"""Operands in fp8."""

import torch
from torch import nn


def fp8(x):
    return x.to(torch.float8_e4m3fn).float()


class ModelNew(nn.Module):
    def forward(self, a, b):
        return (fp8(a) @ fp8(b)).to(a.dtype)
