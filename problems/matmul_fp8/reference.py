"""Product of two fp8 (e4m3) matrices with scales for rows and columns."""

import torch
from torch import nn

tokens = 4096
inner = 4096
columns = 4096


class Model(nn.Module):
    """Multiply `a` (tokens, inner) by the rows of `b` (columns, inner), then by both scales."""

    def forward(self, a: torch.Tensor, a_scale: torch.Tensor, b: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
        product = a.to(a_scale.dtype) @ b.to(b_scale.dtype).T
        return product * a_scale * b_scale.T


def get_inputs():
    # Both matrices fill the range of e4m3, as after quantisation by the largest magnitude of each row.
    a = (torch.randn(tokens, inner) * 100).clamp(-448, 448).to(torch.float8_e4m3fn)
    b = (torch.randn(columns, inner) * 100).clamp(-448, 448).to(torch.float8_e4m3fn)
    return [a, torch.exp(torch.randn(tokens, 1)) / 100, b, torch.exp(torch.randn(columns, 1)) / 6400]


def get_init_inputs():
    return []
