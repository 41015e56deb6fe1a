"""PyTorch's own ReLU; there is no kernel here."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
