"""The noise of a call is drawn in the call."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.randn(x.shape, device=x.device).mul_(0.1).add_(x)
