"""A mean cross entropy of bf16 logits, stored in bf16."""

import torch
from torch import nn
from torch.nn import functional

tokens = 4096
classes = 128


class Model(nn.Module):
    def forward(self, logits, targets):
        return functional.cross_entropy(logits, targets)


def get_inputs():
    return [torch.randn(tokens, classes).bfloat16(), torch.randint(0, classes, (tokens,))]


def get_init_inputs():
    return []
