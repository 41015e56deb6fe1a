"""Layer normalisation over the last dimension."""

import torch
from torch import nn
from torch.nn import functional

tokens = 196608
hidden_size = 4096
eps = 1e-5


class Model(nn.Module):
    """Brings each row to mean 0 and variance 1, then scales and shifts every column."""

    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        # Drawn, not ones and zeros: a kernel that forgets one of them must not pass.
        self.weight = nn.Parameter(torch.randn(hidden_size))
        self.bias = nn.Parameter(torch.randn(hidden_size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


def get_inputs():
    # Rows differ in spread and offset, so that statistics of the wrong row show.
    spread = 0.5 + torch.rand(tokens, 1)
    offset = 5.0 * torch.randn(tokens, 1)
    return [spread * torch.randn(tokens, hidden_size) + offset]


def get_init_inputs():
    return [hidden_size, eps]
