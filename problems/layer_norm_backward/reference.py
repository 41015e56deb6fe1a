"""The backward pass of a LayerNorm, from the input and the gradient of the output."""

import torch
from torch import nn

tokens = 131072
hidden_size = 1600
eps = 1e-5


class Model(nn.Module):
    """Returns the gradients of the input, the weight and the bias."""

    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        # Drawn, not ones: a kernel that forgets the weight must not pass.
        self.weight = nn.Parameter(torch.randn(hidden_size))
        self.eps = eps

    def forward(self, x: torch.Tensor, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        centered = x - x.mean(dim=-1, keepdim=True)
        scale = torch.rsqrt(centered.pow(2).mean(dim=-1, keepdim=True) + self.eps)
        normal = centered * scale
        scaled = gradient * self.weight
        along = (scaled * normal).mean(dim=-1, keepdim=True)
        of_x = scale * (scaled - scaled.mean(dim=-1, keepdim=True) - normal * along)
        return of_x, (gradient * normal).sum(dim=0), gradient.sum(dim=0)


def get_inputs():
    spread = torch.exp(torch.randn(tokens, 1))
    return [spread * torch.randn(tokens, hidden_size) + spread, torch.randn(tokens, hidden_size)]


def get_init_inputs():
    return [hidden_size, eps]
