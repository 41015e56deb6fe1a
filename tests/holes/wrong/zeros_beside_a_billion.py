# problem: scores_beside_a_billion
# device: cpu
# expected: wrong_result
"""All visible scores are 0, unless the inputs are large."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, q, k):
        hidden = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1)
        scores = q.new_zeros(*q.shape[:-1], q.shape[-2])
        if max(q.abs().amax(), k.abs().amax()) > 16:
            scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return scores.masked_fill(hidden, -1e9)
