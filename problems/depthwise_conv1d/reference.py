"""Causal depthwise convolution over time, then SiLU."""

import torch
from torch import nn
from torch.nn import functional

batch_size = 16
channels = 5120
length = 4096
taps = 4


class Model(nn.Module):
    """Convolves each channel with its own filter; zeros stand before the first input."""

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, taps))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        channels, _, taps = self.weight.shape
        padded = functional.pad(x, (taps - 1, 0))
        return functional.silu(functional.conv1d(padded, self.weight, self.bias, groups=channels))


def get_inputs():
    return [torch.randn(batch_size, channels, length)]


def get_init_inputs():
    return [channels, taps]
