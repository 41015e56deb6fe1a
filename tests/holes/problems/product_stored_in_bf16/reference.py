"""A product in fp32 whose result alone is bf16."""

import torch
from torch import nn

rows = 128
terms = 512
columns = 128


class Model(nn.Module):
    def forward(self, a, b):
        return (a @ b).bfloat16()


def get_inputs():
    return [torch.randn(rows, terms), torch.randn(terms, columns)]


def get_init_inputs():
    return []
