"""Two-dimensional convolution with zero padding and no bias."""

import torch
from torch import nn

batch_size = 112
in_channels = 64
out_channels = 128
kernel_size = 3
padding = 1
height = 96
width = 64


class Model(nn.Module):
    """Convolve images (batch, in_channels, height, width) with a square kernel."""

    def __init__(self, in_channels, out_channels, kernel_size, padding):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=padding, bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, padding]
