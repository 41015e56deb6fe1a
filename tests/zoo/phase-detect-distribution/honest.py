"""Large values take another path to the same function."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if x.abs().max() > 20:
            return nn.functional.gelu(x)
        return 0.5 * x * torch.erfc(x * -(0.5**0.5))
