"""Attention of one query for each sequence against keys and values in pages."""

import torch
from torch import nn

batch_size = 16
query_heads = 32
key_heads = 8
features = 128
page_size = 16
pages_of_sequence = 64


class Model(nn.Module):
    """Attends to the first `lengths` positions of each sequence, whose pages are listed in order."""

    def forward(self, query, key, value, pages, lengths):
        # In float32, rounded once: with rounded scores, the tolerance would be far wider.
        wide = torch.promote_types(query.dtype, torch.float32)
        batch, _, features = query.shape
        key_heads = key.shape[2]
        # (batch, positions, heads, features) to (batch, heads, positions, features)
        keys, values = (each[pages].flatten(1, 2).transpose(1, 2).to(wide) for each in (key, value))
        grouped = query.to(wide).reshape(batch, key_heads, -1, features)
        scores = grouped @ keys.transpose(-2, -1) * features**-0.5
        hidden = torch.arange(keys.shape[2], device=query.device) >= lengths[:, None]
        weights = torch.softmax(scores.masked_fill(hidden[:, None, None], float("-inf")), dim=-1)
        return (weights @ values).reshape(query.shape).to(query.dtype)


def get_inputs():
    # Queries of this size lead to weights that differ: flat weights would hide most keys.
    query = (2.0 * torch.randn(batch_size, query_heads, features)).to(torch.bfloat16)
    shape = (batch_size * pages_of_sequence, page_size, key_heads, features)
    key, value = (torch.randn(shape).to(torch.bfloat16) for _ in range(2))
    pages = torch.randperm(batch_size * pages_of_sequence).view(batch_size, pages_of_sequence)
    lengths = torch.randint(page_size, page_size * pages_of_sequence + 1, (batch_size,))
    return [query, key, value, pages, lengths]


def get_init_inputs():
    return []
