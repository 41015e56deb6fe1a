"""Grouped-query decoding in Triton: a program for all query heads that share a head of keys and values.

Each key and value is read once for the whole group. Tensor cores multiply at least 16 rows, so the group is padded.
As in FlashAttention, weights are rounded to bfloat16 before the second product; sums stay in float32.
"""

import torch
import triton
import triton.language as tl
from torch import nn

KEYS = 64


@triton.jit
def gqa_decode_kernel(
    query, key, value, out, group, length, features, factor,
    GROUP: tl.constexpr, KEYS: tl.constexpr, FEATURES: tl.constexpr,
):  # fmt: skip
    key_head = tl.program_id(0).to(tl.int64)  # of all sequences
    head = tl.arange(0, GROUP)
    feature = tl.arange(0, FEATURES)
    own = (key_head * group + head[:, None]) * features + feature[None, :]
    is_own = (head[:, None] < group) & (feature[None, :] < features)
    queries = tl.load(query + own, mask=is_own, other=0.0)
    largest = tl.full((GROUP,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((GROUP,), dtype=tl.float32)
    result = tl.zeros((GROUP, FEATURES), dtype=tl.float32)
    for start in range(0, length, KEYS):
        place = start + tl.arange(0, KEYS)
        row = (key_head * length + place[:, None]) * features + feature[None, :]
        inside = (place[:, None] < length) & (feature[None, :] < features)
        keys = tl.load(key + row, mask=inside, other=0.0)
        values = tl.load(value + row, mask=inside, other=0.0)
        scores = tl.where(place[None, :] < length, tl.dot(queries, tl.trans(keys)) * factor, -float("inf"))
        raised = tl.maximum(largest, tl.max(scores, axis=1))
        kept = tl.exp(largest - raised)  # 0 for the first keys
        weights = tl.exp(scores - raised[:, None])
        total = total * kept + tl.sum(weights, axis=1)
        result = tl.dot(weights.to(values.dtype), values, result * kept[:, None])
        largest = raised
    tl.store(out + own, (result / total[:, None]).to(out.dtype.element_ty), mask=is_own)


class ModelNew(nn.Module):
    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        batch, key_heads, length, features = key.shape
        group = query.shape[1] // key_heads
        out = torch.empty_like(query)
        gqa_decode_kernel[(batch * key_heads,)](
            query, key, value, out, group, length, features, features**-0.5,
            GROUP=max(16, triton.next_power_of_2(group)), KEYS=KEYS, FEATURES=max(16, triton.next_power_of_2(features)),
        )  # fmt: skip
        return out
