"""SiLU of four vectors of four types."""

import torch
from torch import nn
from torch.nn import functional

count = 4194304


class Model(nn.Module):
    def forward(self, single, half, brain, double):
        return tuple(functional.silu(x) for x in (single, half, brain, double))


def get_inputs():
    dtypes = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
    return [torch.randn(count).to(dtype) for dtype in dtypes]


def get_init_inputs():
    return []
