# problem: gqa_decode
# device: cpu
# expected: correct
"""Weights rounded to bf16 for the second product, before the division by their sum, as in FlashAttention."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, query, key, value):
        batch, key_heads, _, features = key.shape
        grouped = query.float().reshape(batch, key_heads, -1, features)
        scores = grouped @ key.float().transpose(-2, -1) * features**-0.5
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))
        out = weights.to(query.dtype).float() @ value.float() / weights.sum(-1, keepdim=True)
        return out.reshape(query.shape).to(query.dtype)
