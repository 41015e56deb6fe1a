"""Dequantisation of rows of fp8 (e4m3) with a scale for each row."""

import torch
from torch import nn

tokens = 16384
hidden_size = 7168


class Model(nn.Module):
    """Multiply each row of codes by its scale."""

    def forward(self, codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return codes.to(scale.dtype) * scale


def get_inputs():
    # Rows fill the range of e4m3, as after quantisation by each row's largest magnitude.
    codes = (torch.randn(tokens, hidden_size) * 100).clamp(-448, 448).to(torch.float8_e4m3fn)
    return [codes, torch.exp(torch.randn(tokens, 1)) / 100]


def get_init_inputs():
    return []
