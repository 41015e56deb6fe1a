"""A product in bf16 of matrices of both signs."""

import torch
from torch import nn

rows = 32
terms = 4096
columns = 32


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(rows, terms).bfloat16(), torch.randn(terms, columns).bfloat16()]


def get_init_inputs():
    return []
