"""Attention scores from int8 queries and keys."""

import torch
from torch import nn

batch = 4
heads = 32
tokens = 1024
head_size = 128


class Model(nn.Module):
    """Multiply queries by keys, restore the scales of both, and take the softmax over keys."""

    def forward(self, q: torch.Tensor, q_scale: torch.Tensor, k: torch.Tensor, k_scale: torch.Tensor) -> torch.Tensor:
        # A sum of 128 products of int8 is at most 2 ** 21, exact in fp32.
        products = q.to(q_scale.dtype) @ k.to(k_scale.dtype).transpose(-1, -2)
        scores = products * q_scale * k_scale.transpose(-1, -2) / head_size**0.5
        return scores.softmax(dim=-1)


def get_inputs():
    shape = (batch, heads, tokens, head_size)
    q, k = ((torch.randn(shape) * 40).round().clamp(-127, 127).to(torch.int8) for _ in range(2))
    q_scale, k_scale = ((0.5 + torch.rand(batch, heads, tokens, 1)) / 40 for _ in range(2))
    return [q, q_scale, k, k_scale]


def get_init_inputs():
    return []
