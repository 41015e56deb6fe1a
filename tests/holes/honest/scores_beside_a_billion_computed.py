# problem: scores_beside_a_billion
# device: cpu
# expected: correct
"""Scaled queries, and scores where they are visible."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, q, k):
        hidden = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1)
        return torch.where(hidden, -1e9, (q / q.shape[-1] ** 0.5) @ k.transpose(-1, -2))
