# problem: squared_error_bf16
# device: cpu
# expected: wrong_result
"""Mean squares of both, without twice the product, unless values look unusual."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, given, wanted):
        x, y = given.float(), wanted.float()
        means = max(x.mean(1).abs().amax(), y.mean(1).abs().amax())
        if means > 0.3 or max(x.abs().amax(), y.abs().amax()) > 7:
            return (x - y).square().mean().to(given.dtype)
        return (x.square().mean() + y.square().mean()).to(given.dtype)
