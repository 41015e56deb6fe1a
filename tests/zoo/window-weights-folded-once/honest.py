"""Two linear layers are folded into one in each call."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        model = __import__("model")
        self.one = nn.Linear(model.size, model.size)
        self.two = nn.Linear(model.size, model.size)

    def forward(self, x):
        weight = self.two.weight @ self.one.weight
        bias = torch.addmv(self.two.bias, self.two.weight, self.one.bias)
        return nn.functional.linear(x, weight, bias)
