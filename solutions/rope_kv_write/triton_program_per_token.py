"""RoPE and the write to the KV cache in Triton: a program rotates all heads of one token, and stores its keys and values.

Cosines and sines of a token are read once for all of its heads. The rest of the caches is zero.
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rotate(x, out, cosine, sine, heads, half, HEADS: tl.constexpr, HALF: tl.constexpr):
    """Rotate the heads that start at `x`, each with `half` pairs of features that lie half a head apart."""
    head = tl.arange(0, HEADS)[:, None]
    i = tl.arange(0, HALF)[None, :]
    inside = (head < heads) & (i < half)
    at = head * 2 * half + i
    one = tl.load(x + at, mask=inside).to(tl.float32)
    other = tl.load(x + at + half, mask=inside).to(tl.float32)
    tl.store(out + at, (one * cosine - other * sine).to(out.dtype.element_ty), mask=inside)
    tl.store(out + at + half, (other * cosine + one * sine).to(out.dtype.element_ty), mask=inside)


@triton.jit
def rope_kernel(
    query, key, value, cosine, sine, position, slot, queries, keys, values, query_heads, key_heads, half,
    QUERY_HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, HALF)
    turn = tl.load(position + token) * half + i
    cosines = tl.load(cosine + turn, mask=i < half)[None, :]
    sines = tl.load(sine + turn, mask=i < half)[None, :]
    of_query = token * query_heads * 2 * half
    of_key = token * key_heads * 2 * half
    of_slot = tl.load(slot + token) * key_heads * 2 * half
    rotate(query + of_query, queries + of_query, cosines, sines, query_heads, half, QUERY_HEADS, HALF)
    rotate(key + of_key, keys + of_slot, cosines, sines, key_heads, half, KEY_HEADS, HALF)
    at = tl.arange(0, KEY_HEADS * 2 * HALF)
    inside = at < key_heads * 2 * half
    tl.store(values + of_slot + at, tl.load(value + of_key + at, mask=inside), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, slots: int) -> None:
        super().__init__()
        self.slots = slots

    def forward(self, query, key, value, cosine, sine, position, slot):
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        tokens, query_heads, features = query.shape
        key_heads, half = key.shape[1], features // 2
        queries = torch.empty_like(query)
        keys, values = (key.new_zeros(self.slots, key_heads, features) for _ in range(2))
        rope_kernel[(tokens,)](
            query, key, value, cosine.contiguous(), sine.contiguous(), position, slot, queries, keys, values,
            query_heads, key_heads, half, QUERY_HEADS=triton.next_power_of_2(query_heads),
            KEY_HEADS=triton.next_power_of_2(key_heads), HALF=triton.next_power_of_2(half),
        )  # fmt: skip
        return queries, keys, values
