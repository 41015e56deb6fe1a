# problem: gqa_decode
# device: cpu
# expected: wrong_result
"""Scores rounded to bf16 before the exponential."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, query, key, value):
        batch, key_heads, _, features = key.shape
        grouped = query.float().reshape(batch, key_heads, -1, features)
        scores = grouped @ key.float().transpose(-2, -1) * features**-0.5
        out = torch.softmax(scores.bfloat16().float(), dim=-1) @ value.float()
        return out.reshape(query.shape).to(query.dtype)
