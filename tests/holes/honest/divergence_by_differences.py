# problem: divergence_of_rows
# device: cpu
# expected: correct
"""Differences of logits, less the difference of their sums of exponentials."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        p, q = torch.log_softmax(a, -1), torch.log_softmax(b, -1)
        return (torch.softmax(a, -1) * (p - q)).sum(-1)
