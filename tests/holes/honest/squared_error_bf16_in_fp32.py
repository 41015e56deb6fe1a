# problem: squared_error_bf16
# device: cpu
# expected: correct
"""Differences and their squares in fp32, rounded once."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, given, wanted):
        return (given.float() - wanted.float()).square().mean().to(given.dtype)
