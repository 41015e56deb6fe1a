"""A product in bf16 with sums of 64 terms."""

import torch
from torch import nn

rows = 128
terms = 64
columns = 64


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(rows, terms).bfloat16(), torch.randn(terms, columns).bfloat16()]


def get_init_inputs():
    return []
