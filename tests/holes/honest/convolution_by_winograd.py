# problem: convolution_relu
# device: cpu
# expected: correct
"""Winograd's products of tiles of 4 x 4 outputs, F(4x4, 3x3), in fp32."""

import torch
from torch import nn
from torch.nn import functional

TILE = [[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0]]
TILE += [[0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]]
WEIGHT = [[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]
OUTPUT = [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        tile, weight, output = (torch.tensor(each, dtype=x.dtype) for each in (TILE, WEIGHT, OUTPUT))
        weight = weight / 24
        tiles = functional.pad(x, (1, 1, 1, 1)).unfold(2, 6, 4).unfold(3, 6, 4)
        values = tile @ tiles @ tile.T
        weights = weight @ self.conv.weight @ weight.T
        products = torch.einsum("nchwij,ocij->nohwij", values, weights)
        images = (output @ products @ output.T).permute(0, 1, 2, 4, 3, 5).reshape(x.shape)
        return torch.relu(images + self.conv.bias[:, None, None])
