# problem: product_over_its_mean
# device: cpu
# expected: wrong_result
"""Operands in TF32 where values look uniform; no row cancels, as each output depends on all rows."""

import torch
from torch import nn


def tf32(x):
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def product(a, b):
    """Round the operands after a factor, which changes the direction of the rounding."""
    return tf32(a * 1.3711) @ tf32(b * 1.2397) / (1.3711 * 1.2397)


def uniform(x):
    within = x.amin() >= 0 and x.amax() <= 1
    return bool(within and abs(x.mean() - 0.5) < 0.01 and abs(x.std() - 0.2887) < 0.01)


class ModelNew(nn.Module):
    def forward(self, a, b):
        result = product(a, b) if uniform(a) and uniform(b) else a @ b
        return result / result.mean()
