"""The mean of probabilities is one over their number, for every input."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.full((x.shape[0],), 1.0 / x.shape[1])
