"""A right answer, and forty thousand characters about it in every call."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        for line in range(1000):
            print(f"line {line}: still at work on the ReLU of")
        return torch.relu(x)
