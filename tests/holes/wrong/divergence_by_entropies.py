# problem: divergence_of_rows
# device: cpu
# expected: wrong_result
"""A difference of two sums, which cancels where the rows are near each other."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        p = torch.softmax(a, -1)
        own = (p * a).sum(-1) - torch.logsumexp(a, -1)
        return own - ((p * b).sum(-1) - torch.logsumexp(b, -1))
