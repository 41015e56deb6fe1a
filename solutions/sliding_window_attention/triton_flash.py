"""Sliding-window attention in Triton: a program for a block of queries goes through the keys that its window reaches.

As in FlashAttention, weights are rounded to bfloat16 before the second product; sums stay in float32.
"""

import torch
import triton
import triton.language as tl
from torch import nn

QUERIES, KEYS = 64, 32


@triton.jit
def sliding_window_kernel(
    query, key, value, out, group, length, features, window, factor,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, FEATURES: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(length, QUERIES)
    head = tl.program_id(0) // blocks  # of all sequences; heads of a group are neighbours
    first = tl.program_id(0) % blocks * QUERIES
    place = first + tl.arange(0, QUERIES)
    feature = tl.arange(0, FEATURES)
    is_own = (place[:, None] < length) & (feature[None, :] < features)
    own = (head.to(tl.int64) * length + place[:, None]) * features + feature[None, :]
    queries = tl.load(query + own, mask=is_own, other=0.0)
    of_keys = (head // group).to(tl.int64) * length
    largest = tl.full((QUERIES,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((QUERIES,), dtype=tl.float32)
    result = tl.zeros((QUERIES, FEATURES), dtype=tl.float32)
    oldest = max(first - window + 1, 0)
    for start in range(oldest // KEYS * KEYS, min(first + QUERIES, length), KEYS):
        other = start + tl.arange(0, KEYS)
        row = (of_keys + other[:, None]) * features + feature[None, :]
        inside = (other[:, None] < length) & (feature[None, :] < features)
        keys = tl.load(key + row, mask=inside, other=0.0)
        values = tl.load(value + row, mask=inside, other=0.0)
        back = place[:, None] - other[None, :]
        scores = tl.where((back >= 0) & (back < window), tl.dot(queries, tl.trans(keys)) * factor, -float("inf"))
        raised = tl.maximum(largest, tl.max(scores, axis=1))
        # A query without a key up to here has no largest score, and infinity minus infinity is no number.
        base = tl.where(raised == -float("inf"), 0.0, raised)
        kept = tl.exp(largest - base)
        weights = tl.exp(scores - base[:, None])
        total = total * kept + tl.sum(weights, axis=1)
        result = tl.dot(weights.to(values.dtype), values, result * kept[:, None])
        largest = raised
    tl.store(out + own, (result / total[:, None]).to(out.dtype.element_ty), mask=is_own)


class ModelNew(nn.Module):
    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        batch, heads, length, features = query.shape
        out = torch.empty_like(query)
        sliding_window_kernel[(batch * heads * triton.cdiv(length, QUERIES),)](
            query, key, value, out, heads // key.shape[1], length, features, self.window, features**-0.5,
            QUERIES=QUERIES, KEYS=KEYS, FEATURES=max(16, triton.next_power_of_2(features)), num_warps=8,
        )  # fmt: skip
        return out
