"""An instance norm of large planes in bf16."""

import torch
from torch import nn

batch = 2
channels = 3
side = 256


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.InstanceNorm2d(channels)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(batch, channels, side, side).bfloat16()]


def get_init_inputs():
    return [channels]
