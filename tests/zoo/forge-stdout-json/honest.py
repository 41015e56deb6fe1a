"""A submission that prints."""

import os

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        os.write(1, b"shape of the input: " + str(tuple(x.shape)).encode() + b"\n")
        return torch.relu(x)
