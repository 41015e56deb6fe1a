"""What comes between is kept in a buffer from call to call; the output is a new tensor every time."""

import torch
from model import Model


class ModelNew(Model):
    workspace = None

    def forward(self, x):
        shape = (x.shape[0], self.linear.out_features)
        if self.workspace is None or self.workspace.shape != shape:
            self.workspace = torch.empty(shape, dtype=x.dtype, device=x.device)
        with torch.no_grad():
            torch.addmm(self.linear.bias, x, self.linear.weight.t(), out=self.workspace)
        return self.workspace.clamp(min=0) / self.divisor
