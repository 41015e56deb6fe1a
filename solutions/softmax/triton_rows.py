"""Softmax in Triton: a program holds a whole row, so that the row is read once."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x, out, dim, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * dim
    i = tl.arange(0, BLOCK)
    value = tl.load(x + row + i, mask=i < dim, other=-float("inf"))
    numerator = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row + i, numerator / tl.sum(numerator, axis=0), mask=i < dim)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        dim = x.size(-1)
        if x.numel():
            block = triton.next_power_of_2(dim)
            softmax_kernel[(x.numel() // dim,)](x, out, dim, BLOCK=block, num_warps=16 if block > 4096 else 4)
        return out
