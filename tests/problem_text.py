"""Text of a small problem, for tests that change a line of the text."""

RELU = """\
import torch
from torch import nn

rows = 64

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(rows, 32)]

def get_init_inputs():
    return []
"""
