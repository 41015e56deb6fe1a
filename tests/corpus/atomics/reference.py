"""Sums, maxima and minima of columns."""

import torch
from torch import nn

rows = 4096
columns = 4096


class Model(nn.Module):
    def forward(self, x: torch.Tensor, k: torch.Tensor):
        sums = x.abs().sum(0)
        wide_sums = x.double().abs().sum(0)
        return sums, wide_sums, k.sum(0).to(torch.int32), k.amax(0), k.amin(0)


def get_inputs():
    return [torch.randn(rows, columns), torch.randint(-1000, 1000, (rows, columns), dtype=torch.int32)]


def get_init_inputs():
    return []
