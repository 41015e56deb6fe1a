"""A router's top-k in Triton: a program holds the logits of a few rows, and takes the largest as often as experts are chosen.

Of equal logits, the lowest number among them counts. Weights are the softmax of the chosen logits.
"""

import torch
import triton
import triton.language as tl
from torch import nn

ROWS = 16


@triton.jit
def softmax_topk_kernel(
    logits, weights, numbers, rows, experts,
    CHOSEN: tl.constexpr, RANKS: tl.constexpr, ROWS: tl.constexpr, EXPERTS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    expert = tl.arange(0, EXPERTS)[None, :]
    rank = tl.arange(0, RANKS)[None, :]
    inside = (row[:, None] < rows) & (expert < experts)
    left = tl.load(logits + row[:, None].to(tl.int64) * experts + expert, mask=inside, other=-float("inf"))
    own = tl.full((ROWS, RANKS), -float("inf"), dtype=tl.float32)
    of_own = tl.zeros((ROWS, RANKS), dtype=tl.int32)
    for place in tl.static_range(CHOSEN):
        best = tl.max(left, axis=1)[:, None]
        of_best = tl.min(tl.where(left == best, expert, EXPERTS), axis=1)[:, None]
        own = tl.where(rank == place, best, own)
        of_own = tl.where(rank == place, of_best, of_own)
        left = tl.where(expert == of_best, -float("inf"), left)
    raised = tl.exp(own - tl.max(own, axis=1)[:, None])
    at = row[:, None].to(tl.int64) * CHOSEN + rank
    is_chosen = (row[:, None] < rows) & (rank < CHOSEN)
    tl.store(weights + at, raised / tl.sum(raised, axis=1)[:, None], mask=is_chosen)
    tl.store(numbers + at, of_own.to(tl.int64), mask=is_chosen)


class ModelNew(nn.Module):
    def __init__(self, chosen: int) -> None:
        super().__init__()
        self.chosen = chosen

    def forward(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = logits.contiguous()
        rows, experts = logits.shape
        weights = torch.empty(rows, self.chosen, device=logits.device, dtype=logits.dtype)
        numbers = torch.empty(rows, self.chosen, device=logits.device, dtype=torch.int64)
        softmax_topk_kernel[(triton.cdiv(rows, ROWS),)](
            logits, weights, numbers, rows, experts, CHOSEN=self.chosen,
            RANKS=triton.next_power_of_2(self.chosen), ROWS=ROWS, EXPERTS=triton.next_power_of_2(experts),
        )  # fmt: skip
        return weights, numbers
