# problem: gqa_decode
# device: cpu
# expected: wrong_result
"""One accumulator in bf16 for the second product."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, query, key, value):
        batch, key_heads, _, features = key.shape
        grouped = query.float().reshape(batch, key_heads, -1, features)
        scores = grouped @ key.float().transpose(-2, -1) * features**-0.5
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(grouped, dtype=torch.bfloat16)
        for k in range(key.shape[2]):
            out = out + (weights[..., k : k + 1] * value[:, :, k : k + 1].float()).bfloat16()
        return out.reshape(query.shape).to(query.dtype)
