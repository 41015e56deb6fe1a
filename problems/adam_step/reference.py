"""One step of AdamW on a matrix."""

import torch
from torch import nn

rows = 4096
columns = 14336
learning_rate = 1e-2
beta1 = 0.9
beta2 = 0.95
eps = 1e-8
decay = 0.1


class Model(nn.Module):
    """Returns the new parameters, the new mean of gradients and the new mean of their squares."""

    def forward(
        self, parameter: torch.Tensor, gradient: torch.Tensor, mean: torch.Tensor, mean_square: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean = beta1 * mean + (1 - beta1) * gradient
        mean_square = beta2 * mean_square + (1 - beta2) * gradient * gradient
        step = mean / (mean_square.sqrt() + eps) + decay * parameter
        return parameter - learning_rate * step, mean, mean_square


def get_inputs():
    # Sizes as in training: weights of 0.02, and a step of a similar size.
    parameter = 0.02 * torch.randn(rows, columns)
    gradient = 1e-3 * torch.randn(rows, columns)
    mean = 5e-4 * torch.randn(rows, columns)
    mean_square = (1e-3 * torch.randn(rows, columns)).square()
    return [parameter, gradient, mean, mean_square]


def get_init_inputs():
    return []
