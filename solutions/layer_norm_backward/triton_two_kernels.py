"""LayerNorm's gradient in Triton: programs go through strips of rows, and a second kernel adds up the strips' sums.

A row is read once and held in registers. Sums over all rows are the same in every run, as no atomic addition is used.
"""

import torch
import triton
import triton.language as tl
from torch import nn

STRIPS, ROWS, COLUMNS = 1024, 32, 64


@triton.jit
def rows_kernel(x, gradient, weight, of_x, of_weight, of_bias, rows, columns, eps, BLOCK: tl.constexpr):
    strip, strips = tl.program_id(0), tl.num_programs(0)
    i = tl.arange(0, BLOCK)
    inside = i < columns
    scales = tl.load(weight + i, mask=inside, other=0.0)
    weight_sum = tl.zeros((BLOCK,), dtype=tl.float32)
    bias_sum = tl.zeros((BLOCK,), dtype=tl.float32)
    for row in range(strip, rows, strips):
        at = tl.cast(row, tl.int64) * columns + i
        value = tl.load(x + at, mask=inside, other=0.0)
        grad = tl.load(gradient + at, mask=inside, other=0.0)
        centered = tl.where(inside, value - tl.sum(value, axis=0) / columns, 0.0)
        scale = 1.0 / tl.sqrt_rn(tl.sum(centered * centered, axis=0) / columns + eps)
        normal = centered * scale
        scaled = grad * scales
        mean = tl.sum(scaled, axis=0) / columns
        along = tl.sum(scaled * normal, axis=0) / columns
        tl.store(of_x + at, scale * (scaled - mean - normal * along), mask=inside)
        weight_sum += grad * normal
        bias_sum += grad
    tl.store(of_weight + strip * columns + i, weight_sum, mask=inside)
    tl.store(of_bias + strip * columns + i, bias_sum, mask=inside)


@triton.jit
def strips_kernel(
    weight_parts, bias_parts, of_weight, of_bias, strips, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    weight_sum = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    bias_sum = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, strips, ROWS):
        strip = start + tl.arange(0, ROWS)
        at = strip[:, None] * columns + column[None, :]
        inside = (strip[:, None] < strips) & (column[None, :] < columns)
        weight_sum += tl.load(weight_parts + at, mask=inside, other=0.0)
        bias_sum += tl.load(bias_parts + at, mask=inside, other=0.0)
    tl.store(of_weight + column, tl.sum(weight_sum, axis=0), mask=column < columns)
    tl.store(of_bias + column, tl.sum(bias_sum, axis=0), mask=column < columns)


class ModelNew(nn.Module):
    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden_size))
        self.eps = eps

    def forward(self, x: torch.Tensor, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, gradient = x.contiguous(), gradient.contiguous()
        rows, columns = x.shape
        strips = min(STRIPS, rows)
        of_x = torch.empty_like(x)
        weight_parts, bias_parts = (torch.empty(strips, columns, device=x.device) for _ in range(2))
        of_weight, of_bias = (torch.empty(columns, device=x.device) for _ in range(2))
        block = triton.next_power_of_2(columns)
        rows_kernel[(strips,)](
            x, gradient, self.weight, of_x, weight_parts, bias_parts, rows, columns, self.eps, BLOCK=block, num_warps=8
        )
        strips_kernel[(triton.cdiv(columns, COLUMNS),)](
            weight_parts, bias_parts, of_weight, of_bias, strips, columns, ROWS=ROWS, COLUMNS=COLUMNS
        )
        return of_x, of_weight, of_bias
