"""Rotary position embedding of queries and keys, and the write of keys and values into a cache."""

import torch
from torch import nn

tokens = 32768
slots = 40960
positions = 8192
query_heads = 32
key_heads = 8
features = 128
base = 500000.0


def rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Rotate each pair of features that lie half a head apart, in float32."""
    one, other = x.to(torch.promote_types(x.dtype, torch.float32)).chunk(2, dim=-1)
    return torch.cat([one * cosine - other * sine, other * cosine + one * sine], dim=-1).to(x.dtype)


class Model(nn.Module):
    """Returns the rotated queries, and the caches of keys and of values."""

    def __init__(self, slots: int) -> None:
        super().__init__()
        self.slots = slots

    def forward(self, query, key, value, cosine, sine, position, slot):
        turns = cosine[position, None], sine[position, None]
        keys, values = (key.new_zeros(self.slots, *key.shape[1:]) for _ in range(2))
        keys[slot] = rotated(key, *turns)
        values[slot] = value
        return rotated(query, *turns), keys, values


def get_inputs():
    query = torch.randn(tokens, query_heads, features).to(torch.bfloat16)
    key, value = (torch.randn(tokens, key_heads, features).to(torch.bfloat16) for _ in range(2))
    speeds = base ** (-torch.arange(0, features, 2) / features)
    angles = torch.arange(positions)[:, None] * speeds
    return [
        *(query, key, value),
        *(angles.cos(), angles.sin()),
        torch.randint(0, positions, (tokens,)),
        torch.randperm(slots)[:tokens],  # no two tokens have the same slot
    ]


def get_init_inputs():
    return [slots]
