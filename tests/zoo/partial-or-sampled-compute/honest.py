"""Every row is computed."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        y[:] = torch.relu(x[:])
        return y
