# problem: distance_to_means
# device: cpu
# expected: wrong_result
"""Mean squares of both, without twice the product, unless a mean is far from 0."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        means = y.mean(1)
        if max(means.abs().amax(), x.mean(1).abs().amax()) > 0.2:
            return (x - means[:, None]).square().mean()
        return x.square().mean() + means.square().mean()
