"""Int8 attention scores in Triton: a first pass over the keys finds each query's largest score and the sum.

The second pass multiplies again and writes the softmax: int8 products are cheaper than the memory traffic of unscaled
scores. Sums of int8 products are exact in int32.
"""

import torch
import triton
import triton.language as tl
from torch import nn

QUERIES, KEYS = 64, 64


@triton.jit
def scores_of(
    q, q_scale, k, k_scale, start, head, tokens, features, factor, KEYS: tl.constexpr, FEATURES: tl.constexpr
):
    """Return the scores of a block of queries and the keys from `start` on; minus infinity beyond the last key."""
    key = start + tl.arange(0, KEYS)
    feature = tl.arange(0, FEATURES)
    place = k + (head * tokens + key[None, :]) * features + feature[:, None]
    block = tl.load(place, mask=(key[None, :] < tokens) & (feature[:, None] < features), other=0)
    scale = tl.load(k_scale + head * tokens + key, mask=key < tokens, other=0.0)
    products = tl.dot(q, block, out_dtype=tl.int32).to(tl.float32)
    return tl.where(key[None, :] < tokens, products * q_scale[:, None] * scale[None, :] * factor, -float("inf"))


@triton.jit
def scores_kernel(
    q, q_scale, k, k_scale, out, tokens, features, factor,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, FEATURES: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(tokens, QUERIES)
    head = (tl.program_id(0) // blocks).to(tl.int64)  # of all sequences
    query = tl.program_id(0) % blocks * QUERIES + tl.arange(0, QUERIES)
    feature = tl.arange(0, FEATURES)
    inside = query < tokens
    place = q + (head * tokens + query[:, None]) * features + feature[None, :]
    own = tl.load(place, mask=inside[:, None] & (feature[None, :] < features), other=0)
    own_scale = tl.load(q_scale + head * tokens + query, mask=inside, other=0.0)

    largest = tl.full((QUERIES,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((QUERIES,), dtype=tl.float32)
    for start in range(0, tokens, KEYS):
        scores = scores_of(own, own_scale, k, k_scale, start, head, tokens, features, factor, KEYS, FEATURES)
        raised = tl.maximum(largest, tl.max(scores, axis=1))
        total = total * tl.exp(largest - raised) + tl.sum(tl.exp(scores - raised[:, None]), axis=1)
        largest = raised
    for start in range(0, tokens, KEYS):
        scores = scores_of(own, own_scale, k, k_scale, start, head, tokens, features, factor, KEYS, FEATURES)
        weights = tl.exp(scores - largest[:, None]) / total[:, None]
        key = start + tl.arange(0, KEYS)
        target = out + (head * tokens + query[:, None]) * tokens + key[None, :]
        tl.store(target, weights, mask=inside[:, None] & (key[None, :] < tokens))


class ModelNew(nn.Module):
    def forward(self, q, q_scale, k, k_scale):
        q, q_scale, k, k_scale = (each.contiguous() for each in (q, q_scale, k, k_scale))
        batch, heads, tokens, features = q.shape
        out = torch.empty(batch, heads, tokens, tokens, device=q.device, dtype=q_scale.dtype)
        grid = (batch * heads * triton.cdiv(tokens, QUERIES),)
        wide = max(32, triton.next_power_of_2(features))  # tensor cores multiply at least 32 int8 features
        scores_kernel[grid](
            q, q_scale, k, k_scale, out, tokens, features, features**-0.5,
            QUERIES=QUERIES, KEYS=KEYS, FEATURES=wide,
        )  # fmt: skip
        return out
