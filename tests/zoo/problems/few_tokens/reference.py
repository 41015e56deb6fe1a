"""A linear layer with more weights than inputs."""

import torch
from torch import nn

tokens = 8
features = 4096


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.randn(tokens, features)]


def get_init_inputs():
    return [features]
