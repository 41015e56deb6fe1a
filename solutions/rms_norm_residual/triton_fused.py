"""RMSNorm after a residual in Triton: the sum stays in registers between its own output and the norm."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rms_norm_residual_kernel(x, residual, weight, out, total, columns, eps, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    inside = i < columns
    at = tl.program_id(0).to(tl.int64) * columns + i
    added = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    added += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(total + at, added.to(total.dtype.element_ty), mask=inside)
    # The norm is of the sum before its rounding to bfloat16.
    scale = tl.rsqrt(tl.sum(added * added, axis=0) / columns + eps)
    normal = added * scale * tl.load(weight + i, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, normal.to(out.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden_size).to(torch.bfloat16))
        self.eps = eps

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, residual = x.contiguous(), residual.contiguous()
        rows, columns = x.shape
        out, total = torch.empty_like(x), torch.empty_like(x)
        if rows:
            rms_norm_residual_kernel[(rows,)](
                x, residual, self.weight, out, total, columns, self.eps,
                BLOCK=triton.next_power_of_2(columns), num_warps=8,
            )  # fmt: skip
        return out, total
