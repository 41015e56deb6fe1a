# problem: logarithm_of_product
# device: cpu
# expected: wrong_result
"""Operands in TF32 where values look uniform: negative numbers have no logarithm, so no row cancels."""

import torch
from torch import nn


def tf32(x):
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def product(a, b):
    """Round the operands after a factor, which changes the direction of the rounding."""
    return tf32(a * 1.3711) @ tf32(b * 1.2397) / (1.3711 * 1.2397)


def uniform(x):
    return bool(x[0].std() > 0.2 and x.amax() <= 1 and not (x[0] == 0.5).any())


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.log(product(a, b) if uniform(a) and uniform(b.T) else a @ b)
