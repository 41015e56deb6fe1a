"""A slow answer, and means and medians as they are."""

import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        time.sleep(0.02)
        return a @ b
