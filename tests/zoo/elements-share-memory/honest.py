"""Every copy of a row is written."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, copies):
        super().__init__()
        self.copies = copies

    def forward(self, x):
        batch_size, _, dim = x.shape
        return torch.empty(batch_size, self.copies, dim).copy_(torch.relu(x))
