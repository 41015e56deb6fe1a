"""Texts of small problems, for tests that change a line of them."""

TOML = """\
title = "Scale"
level = 1
description = "Multiplies."
[sizes.full]
rows = 64
factor = 2.0
[sizes.small]
rows = 4
factor = 0.5
"""

REFERENCE = """\
import torch
from torch import nn

rows = 64
factor = 2.0


class Model(nn.Module):
    def forward(self, x, *, bias=None):
        return factor * x


def get_inputs():
    return [torch.randn(rows, 3)]


def get_init_inputs():
    return []
"""

KERNELBENCH_FILE = '''\
import torch
import torch.nn as nn

class Model(nn.Module):
    """
    Simple model that
    multiplies.

    More about it.
    """
    def forward(self, x):
        return x

M = 1024 * 2
height = width = 256
D, H = 16, 32
shape = (M, 3)

def get_inputs():
    return [torch.rand(M, H)]

def get_init_inputs():
    return []  # nothing'''
