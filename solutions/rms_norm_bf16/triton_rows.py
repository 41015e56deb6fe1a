"""RMSNorm of bfloat16 rows in Triton: a program holds a whole row, and all arithmetic is in float32."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rms_norm_kernel(x, weight, out, columns, eps, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = tl.program_id(0).to(tl.int64) * columns + i
    value = tl.load(x + at, mask=i < columns, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, axis=0) / columns + eps)
    normal = value * scale * tl.load(weight + i, mask=i < columns, other=0.0).to(tl.float32)
    tl.store(out + at, normal.to(out.dtype.element_ty), mask=i < columns)


class ModelNew(nn.Module):
    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden_size).to(torch.bfloat16))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty_like(x)
        if rows:
            block = triton.next_power_of_2(columns)
            rms_norm_kernel[(rows,)](x, self.weight, out, columns, self.eps, BLOCK=block, num_warps=8)
        return out
