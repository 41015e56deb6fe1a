"""Weights are packed once, and again whenever they change."""

import torch
from model import Model


class ModelNew(Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.packed = {}

    def pack(self, linear):
        key = (linear.weight.data_ptr(), linear.weight._version)
        if self.packed.get(linear, (None, None))[0] != key:
            self.packed[linear] = key, linear.weight.t().contiguous()
        return self.packed[linear][1]

    def forward(self, x):
        x = torch.relu(torch.addmm(self.linear1.bias, x, self.pack(self.linear1)))
        x = torch.relu(torch.addmm(self.linear2.bias, x, self.pack(self.linear2)))
        return torch.addmm(self.linear3.bias, x, self.pack(self.linear3))
