"""Sums of long rows in bf16."""

import torch
from torch import nn

rows = 64
columns = 4096


class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=1)


def get_inputs():
    return [torch.rand(rows, columns).bfloat16()]


def get_init_inputs():
    return []
