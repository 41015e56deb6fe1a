# problem: gqa_decode
# device: cpu
# expected: wrong_result
"""Weights in fp8."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, query, key, value):
        batch, key_heads, _, features = key.shape
        grouped = query.float().reshape(batch, key_heads, -1, features)
        scores = grouped @ key.float().transpose(-2, -1) * features**-0.5
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))
        out = weights.to(torch.float8_e4m3fn).float() @ value.float() / weights.sum(-1, keepdim=True)
        return out.reshape(query.shape).to(query.dtype)
