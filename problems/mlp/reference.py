"""Multi-layer perceptron of three linear layers."""

import torch
from torch import nn

batch_size = 2048
in_features = 1024
hidden1_features = 4096
hidden2_features = 2048
out_features = 512


class Model(nn.Module):
    """Apply three linear layers, with ReLU after the first and the second."""

    def __init__(self, in_features, hidden1_features, hidden2_features, out_features):
        super().__init__()
        self.linear1 = nn.Linear(in_features, hidden1_features)
        self.linear2 = nn.Linear(hidden1_features, hidden2_features)
        self.linear3 = nn.Linear(hidden2_features, out_features)

    def forward(self, x):
        x = torch.relu(self.linear1(x))
        x = torch.relu(self.linear2(x))
        return self.linear3(x)


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return {
        "in_features": in_features,
        "hidden1_features": hidden1_features,
        "hidden2_features": hidden2_features,
        "out_features": out_features,
    }
