"""Size constants of its own that are the input's."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        batch_size, dim = x.shape
        y = torch.zeros_like(x)
        y[:batch_size, :dim] = torch.relu(x[:batch_size, :dim])
        return y
