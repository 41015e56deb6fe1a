"""A grouped product in Triton: every program finds its expert among the ends of the groups.

The host does not know how many tiles the groups need, and waits for no GPU to learn the number: it starts one program
more for each expert than the tokens fill, and programs without a tile store nothing.
"""

import torch
import triton
import triton.language as tl
from torch import nn

ROWS, COLUMNS, INNER = 64, 128, 64


@triton.jit
def grouped_kernel(
    x, weight, ends, out, experts, inner, columns,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    own = 0
    first = 0
    last = 0
    start = 0
    before = 0  # tiles of the experts up to here
    for expert in range(experts):
        end = tl.load(ends + expert)
        tiles = tl.cdiv(end - start, ROWS)
        is_own = (tile >= before) & (tile < before + tiles)
        own = tl.where(is_own, expert, own)
        first = tl.where(is_own, start + (tile - before) * ROWS, first)
        last = tl.where(is_own, end, last)
        before += tiles
        start = end
    row = first + tl.arange(0, ROWS)  # beyond `last` where the program has no tile
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    of_expert = weight + own.to(tl.int64) * columns * inner
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for begin in range(0, inner, INNER):
        k = begin + tl.arange(0, INNER)
        left = tl.load(
            x + row[:, None].to(tl.int64) * inner + k[None, :],
            mask=(row[:, None] < last) & (k[None, :] < inner),
            other=0.0,
        )
        right = tl.load(
            of_expert + column[None, :] * inner + k[:, None],
            mask=(column[None, :] < columns) & (k[:, None] < inner),
            other=0.0,
        )
        total = tl.dot(left, right, total)
    place = out + row[:, None].to(tl.int64) * columns + column[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=(row[:, None] < last) & (column[None, :] < columns))


class ModelNew(nn.Module):
    def __init__(self, experts: int, hidden_size: int, expert_size: int) -> None:
        super().__init__()
        weight = torch.randn(experts, expert_size, hidden_size) / hidden_size**0.5
        self.weight = nn.Parameter(weight.to(torch.bfloat16))

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        x, ends = x.contiguous(), ends.contiguous()
        experts, columns, inner = self.weight.shape
        out = torch.empty(x.shape[0], columns, device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(x.shape[0], ROWS) + experts, triton.cdiv(columns, COLUMNS))
        grouped_kernel[grid](
            x, self.weight, ends, out, experts, inner, columns, ROWS=ROWS, COLUMNS=COLUMNS, INNER=INNER, num_warps=8
        )
        return out
