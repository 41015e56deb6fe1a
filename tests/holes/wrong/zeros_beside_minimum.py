# problem: scores_beside_minimum
# device: cpu
# expected: wrong_result
"""All visible scores are 0: the hidden ones give each row its size."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, q, k):
        hidden = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1)
        return q.new_zeros(*q.shape[:-1], q.shape[-2]).masked_fill(hidden, torch.finfo(torch.float32).min)
