"""Two-dimensional convolution, a bias of its own for each channel, ReLU."""

import torch
from torch import nn

batch_size = 256
in_channels = 32
out_channels = 64
kernel_size = 3
padding = 1
height = 128
width = 96


class Model(nn.Module):
    """Convolve images without bias, add `bias` to each channel, and cut off what is negative."""

    def __init__(self, in_channels, out_channels, kernel_size, padding):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=padding, bias=False)
        self.bias = nn.Parameter(0.5 * torch.randn(out_channels, 1, 1))

    def forward(self, x):
        return torch.relu(self.conv(x) + self.bias)


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, padding]
