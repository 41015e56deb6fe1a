"""ReLU in Triton: a program for each block of elements."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 4096


@triton.jit
def relu_kernel(x, out, count, BLOCK: tl.constexpr):
    # The block index is widened before the product: 32 bits end at two thousand million elements.
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < count)
    tl.store(out + i, tl.where(value <= 0.0, 0.0, value), mask=i < count)  # this way round, NaN stays NaN


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        if x.numel():
            relu_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), BLOCK=BLOCK)
        return out
