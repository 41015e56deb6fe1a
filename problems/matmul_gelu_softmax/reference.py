"""Linear layer, GELU, softmax over the features."""

import torch
from torch import nn
from torch.nn import functional

batch_size = 32768
in_features = 2048
out_features = 1024


class Model(nn.Module):
    """Apply a linear layer and the exact (erf) GELU, and normalise each row with a softmax."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.softmax(functional.gelu(self.linear(x)), dim=1)


def get_inputs():
    # Scaled, so that the softmax is neither flat nor a single one.
    return [4.0 * torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
