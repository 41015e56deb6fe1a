"""The mask is added: zero where a position may be seen, minus infinity where not."""

import torch
from model import Model


class ModelNew(Model):
    def forward(self, x, mask):
        batch, length, features = x.shape
        heads, width = self.num_heads, features // self.num_heads
        qkv = self.qkv(x).view(batch, length, 3, heads, width)
        query, key, value = (part.transpose(1, 2) for part in qkv.unbind(2))
        bias = torch.zeros(mask.shape, dtype=x.dtype).masked_fill(~mask, float("-inf"))
        weights = torch.softmax(query @ key.transpose(-2, -1) * width**-0.5 + bias.unsqueeze(1), dim=-1)
        return self.out((weights @ value).transpose(1, 2).reshape(batch, length, features)), weights
