"""Root-mean-square normalisation over the last dimension."""

import torch
from torch import nn

tokens = 98304
hidden_size = 8192
eps = 1e-6


class Model(nn.Module):
    """Brings each row to a mean square of 1, then scales every column."""

    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        # Drawn, not ones: a kernel that forgets the weight must not pass.
        self.weight = nn.Parameter(torch.randn(hidden_size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean_square = x.pow(2).mean(dim=-1, keepdim=True)
        return x * torch.rsqrt(mean_square + self.eps) * self.weight


def get_inputs():
    # Rows differ in spread: plain normal rows have a root mean square of 1 already.
    spread = torch.exp(torch.randn(tokens, 1))
    return [spread * torch.randn(tokens, hidden_size)]


def get_init_inputs():
    return [hidden_size, eps]
