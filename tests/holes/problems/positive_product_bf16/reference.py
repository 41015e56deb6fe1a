"""A product in bf16 of matrices without negative elements."""

import torch
from torch import nn

rows = 32
terms = 4096
columns = 32


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.rand(rows, terms).bfloat16(), torch.rand(terms, columns).bfloat16()]


def get_init_inputs():
    return []
