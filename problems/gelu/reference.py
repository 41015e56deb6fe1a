"""The exact Gaussian error linear unit."""

import torch
from torch import nn
from torch.nn import functional

batch_size = 24576
dim = 32768


class Model(nn.Module):
    """Weighs every element by the normal distribution function of itself."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(x, approximate="none")


def get_inputs():
    # The wide spread reaches both tails, where GELU is nearly 0 and nearly the identity.
    return [2.0 * torch.randn(batch_size, dim)]


def get_init_inputs():
    return []
