"""RMSNorm of the sum of a layer's output and its residual."""

import torch
from torch import nn
from torch.nn import functional

tokens = 65536
hidden_size = 4096
eps = 1e-5


class Model(nn.Module):
    """Returns the normalised sum and the sum itself, which is the next layer's residual."""

    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        # Drawn, not ones: a kernel that forgets the weight must not pass.
        self.weight = nn.Parameter(torch.randn(hidden_size).to(torch.bfloat16))
        self.eps = eps

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # In float32, rounded once: with a rounding of each step, the tolerance would be far wider.
        wide = torch.promote_types(x.dtype, torch.float32)
        total = x.to(wide) + residual.to(wide)
        out = functional.rms_norm(total, self.weight.shape, self.weight.to(wide), self.eps)
        return out.to(x.dtype), total.to(x.dtype)


def get_inputs():
    # Rows differ in spread: plain normal rows have a root mean square near 1.4 already.
    spread = torch.exp(torch.randn(tokens, 1))
    x = (spread * torch.randn(tokens, hidden_size)).to(torch.bfloat16)
    residual = (spread * torch.randn(tokens, hidden_size)).to(torch.bfloat16)
    return [x, residual]


def get_init_inputs():
    return [hidden_size, eps]
