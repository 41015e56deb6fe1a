"""The product of two matrices in half precision."""

import torch
from torch import nn

rows = 1024
inner = 1024
columns = 2048


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs():
    return [torch.randn(rows, inner).to(torch.float16), torch.randn(inner, columns).to(torch.float16)]


def get_init_inputs():
    return []
