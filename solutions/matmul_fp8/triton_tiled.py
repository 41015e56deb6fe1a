"""A product of fp8 matrices in Triton: tiles multiplied by tensor cores, and both scales applied to the sums.

Hopper's tensor cores add fp8 products with about 14 bits. `max_num_imprecise_acc` moves the sums to float32 registers
after each tile. `tl.float8e4nv` is PyTorch's float8_e4m3fn, for GPUs of compute capability 8.9 and above.
"""

import torch
import triton
import triton.language as tl
from torch import nn

ROWS, COLUMNS, INNER = 128, 128, 128
TOGETHER = 8


@triton.jit
def matmul_fp8_kernel(
    a, a_scale, b, b_scale, out, rows, inner, columns,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr, TOGETHER: tl.constexpr,
):  # fmt: skip
    # Programs of a few row blocks and all column blocks run side by side, so that the L2 cache holds their rows.
    column_blocks = tl.cdiv(columns, COLUMNS)
    in_group = TOGETHER * column_blocks
    first = tl.program_id(0) // in_group * TOGETHER
    height = min(tl.cdiv(rows, ROWS) - first, TOGETHER)
    row = (first + tl.program_id(0) % in_group % height) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) % in_group // height * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, inner, INNER):
        k = start + tl.arange(0, INNER)
        left = tl.load(
            a + row[:, None].to(tl.int64) * inner + k[None, :],
            mask=(row[:, None] < rows) & (k[None, :] < inner),
            other=0.0,
        )
        right = tl.load(
            b + column[None, :].to(tl.int64) * inner + k[:, None],
            mask=(column[None, :] < columns) & (k[:, None] < inner),
            other=0.0,
        )
        total = tl.dot(left, right, total, max_num_imprecise_acc=INNER)
    total *= tl.load(a_scale + row, mask=row < rows, other=0.0)[:, None]
    total *= tl.load(b_scale + column, mask=column < columns, other=0.0)[None, :]
    place = out + row[:, None].to(tl.int64) * columns + column[None, :]
    tl.store(place, total, mask=(row[:, None] < rows) & (column[None, :] < columns))


class ModelNew(nn.Module):
    def forward(self, a: torch.Tensor, a_scale: torch.Tensor, b: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
        a, a_scale, b, b_scale = (each.contiguous() for each in (a, a_scale, b, b_scale))
        (rows, inner), columns = a.shape, b.shape[0]
        out = torch.empty(rows, columns, device=a.device, dtype=a_scale.dtype)
        grid = (triton.cdiv(rows, ROWS) * triton.cdiv(columns, COLUMNS),)
        matmul_fp8_kernel[grid](
            a, a_scale, b, b_scale, out, rows, inner, columns,
            ROWS=ROWS, COLUMNS=COLUMNS, INNER=INNER, TOGETHER=TOGETHER, num_warps=8, num_stages=3,
        )  # fmt: skip
        return out
