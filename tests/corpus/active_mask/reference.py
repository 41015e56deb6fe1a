"""How many elements of each row are positive."""

import torch
from torch import nn

batch_size = 4096
dim = 10000


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x > 0).sum(1).to(torch.int32)


def get_inputs():
    return [torch.randn(batch_size, dim)]


def get_init_inputs():
    return []
