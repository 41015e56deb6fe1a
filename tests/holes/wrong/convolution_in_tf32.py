# problem: convolution_relu
# device: cpu
# expected: wrong_result
"""Operands rounded to TF32."""

import torch
from torch import nn
from torch.nn import functional


def in_tf32(tensor):
    return ((tensor.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return torch.relu(functional.conv2d(in_tf32(x), in_tf32(self.conv.weight), self.conv.bias, padding=1))
