"""Paged decoding in Triton: a program for all query heads that share a head of keys and values looks up its pages.

Each key and value is read once for the whole group. Tensor cores multiply at least 16 rows, so the group is padded.
As in FlashAttention, weights are rounded to bfloat16 before the second product; sums stay in float32.
"""

import torch
import triton
import triton.language as tl
from torch import nn

KEYS = 64


@triton.jit
def paged_decode_kernel(
    query, key, value, pages, lengths, out, key_heads, group, pages_of_sequence, page_size, features, factor,
    GROUP: tl.constexpr, KEYS: tl.constexpr, FEATURES: tl.constexpr,
):  # fmt: skip
    sequence = (tl.program_id(0) // key_heads).to(tl.int64)
    key_head = tl.program_id(0) % key_heads
    head = tl.arange(0, GROUP)
    feature = tl.arange(0, FEATURES)
    own = (tl.program_id(0).to(tl.int64) * group + head[:, None]) * features + feature[None, :]
    is_own = (head[:, None] < group) & (feature[None, :] < features)
    queries = tl.load(query + own, mask=is_own, other=0.0)
    length = tl.load(lengths + sequence).to(tl.int32)
    largest = tl.full((GROUP,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((GROUP,), dtype=tl.float32)
    result = tl.zeros((GROUP, FEATURES), dtype=tl.float32)
    for start in range(0, length, KEYS):
        place = start + tl.arange(0, KEYS)
        page = tl.load(pages + sequence * pages_of_sequence + place // page_size, mask=place < length, other=0)
        row = (page * page_size + place % page_size) * key_heads + key_head
        at = row[:, None] * features + feature[None, :]
        inside = (place[:, None] < length) & (feature[None, :] < features)
        keys = tl.load(key + at, mask=inside, other=0.0)
        values = tl.load(value + at, mask=inside, other=0.0)
        scores = tl.where(place[None, :] < length, tl.dot(queries, tl.trans(keys)) * factor, -float("inf"))
        raised = tl.maximum(largest, tl.max(scores, axis=1))
        kept = tl.exp(largest - raised)  # 0 for the first keys
        weights = tl.exp(scores - raised[:, None])
        total = total * kept + tl.sum(weights, axis=1)
        result = tl.dot(weights.to(values.dtype), values, result * kept[:, None])
        largest = raised
    tl.store(out + own, (result / total[:, None]).to(out.dtype.element_ty), mask=is_own)


class ModelNew(nn.Module):
    def forward(self, query, key, value, pages, lengths):
        query, key, value, pages = query.contiguous(), key.contiguous(), value.contiguous(), pages.contiguous()
        batch, heads, features = query.shape
        _, page_size, key_heads, _ = key.shape
        group = heads // key_heads
        out = torch.empty_like(query)
        paged_decode_kernel[(batch * key_heads,)](
            query, key, value, pages, lengths, out, key_heads, group, pages.shape[1], page_size, features,
            features**-0.5, GROUP=max(16, triton.next_power_of_2(group)), KEYS=KEYS,
            FEATURES=max(16, triton.next_power_of_2(features)),
        )  # fmt: skip
        return out
