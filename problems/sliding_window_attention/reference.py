"""Causal attention within a sliding window, with several query heads for each head of keys and values."""

import torch
from torch import nn

batch_size = 2
query_heads = 4
key_heads = 1
length = 1024
window = 512
features = 256


class Model(nn.Module):
    """Attends from each position to itself and to the `window - 1` positions before it."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        # In float32, rounded once: with rounded scores, the tolerance would be far wider.
        wide = torch.promote_types(query.dtype, torch.float32)
        batch, key_heads, length, features = key.shape
        place = torch.arange(length, device=query.device)
        back = place[:, None] - place
        hidden = (back < 0) | (back >= self.window)
        grouped = query.to(wide).reshape(batch, key_heads, -1, length, features)
        results = []
        for head in range(key_heads):  # one head of keys at a time: the scores of all would not fit into memory
            scores = grouped[:, head] @ key[:, head, None].to(wide).transpose(-2, -1) * features**-0.5
            weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)
            results.append(weights @ value[:, head, None].to(wide))
        return torch.stack(results, dim=1).reshape(query.shape).to(query.dtype)


def get_inputs():
    # Queries of this size lead to weights that differ: flat weights would hide most keys.
    query = (2.0 * torch.randn(batch_size, query_heads, length, features)).to(torch.bfloat16)
    key, value = (torch.randn(batch_size, key_heads, length, features).to(torch.bfloat16) for _ in range(2))
    return [query, key, value]


def get_init_inputs():
    return [window]
