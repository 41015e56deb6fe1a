"""The product, computed in every call, and nothing else."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
