"""A subclass of Tensor whose values are computed at once."""

import torch
from torch import nn


class Eager(torch.Tensor):
    pass


class ModelNew(nn.Module):
    def forward(self, a, b):
        return (a @ b).as_subclass(Eager)
