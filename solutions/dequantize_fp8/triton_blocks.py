"""Dequantisation of fp8 rows in Triton: a program for each block of a row.

`tl.float8e4nv` is PyTorch's float8_e4m3fn. Triton compiles the type for GPUs of compute capability 8.9 and above.
"""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 2048


@triton.jit
def dequantize_kernel(codes, scale, out, columns, BLOCK: tl.constexpr):
    blocks = tl.cdiv(columns, BLOCK)
    row = tl.program_id(0) // blocks
    column = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    i = row.to(tl.int64) * columns + column
    value = tl.load(codes + i, mask=column < columns).to(tl.float32)
    tl.store(out + i, value * tl.load(scale + row), mask=column < columns)


class ModelNew(nn.Module):
    def forward(self, codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        codes, scale = codes.contiguous(), scale.contiguous()
        rows, columns = codes.shape
        out = torch.empty(rows, columns, device=codes.device, dtype=scale.dtype)
        if out.numel():
            dequantize_kernel[(rows * triton.cdiv(columns, BLOCK),)](codes, scale, out, columns, BLOCK=BLOCK)
        return out
