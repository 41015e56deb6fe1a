"""Quantisation of rows to fp8 in Triton: a program holds a whole row, so that the row is read once.

`tl.float8e4nv` is PyTorch's float8_e4m3fn, for GPUs of compute capability 8.9 and above. The cast rounds to nearest.
"""

import torch
import triton
import triton.language as tl
from torch import nn

LARGEST, SMALLEST_SCALE = 448.0, 1e-12


@triton.jit
def quantize_kernel(x, codes, scales, columns, LARGEST: tl.constexpr, SMALLEST: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    at = row.to(tl.int64) * columns + i
    value = tl.load(x + at, mask=i < columns, other=0.0)
    scale = tl.div_rn(tl.maximum(tl.max(tl.abs(value), axis=0), SMALLEST), LARGEST)
    # Division to nearest: a quotient in the middle between two codes must not move.
    code = tl.clamp(tl.div_rn(value, scale), -LARGEST, LARGEST)
    tl.store(codes + at, code.to(codes.dtype.element_ty), mask=i < columns)
    tl.store(scales + row, scale)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.contiguous()
        rows, columns = x.shape
        codes = torch.empty(rows, columns, device=x.device, dtype=torch.float8_e4m3fn)
        scales = torch.empty(rows, 1, device=x.device, dtype=x.dtype)
        if rows:
            block = triton.next_power_of_2(columns)
            quantize_kernel[(rows,)](x, codes, scales, columns, LARGEST, SMALLEST_SCALE, BLOCK=block, num_warps=8)
        return codes, scales
