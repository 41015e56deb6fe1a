"""Multi-head self-attention with a boolean mask, returning the attention weights as well."""

import torch
from torch import nn

batch_size = 32
sequence_length = 512
features = 1024
num_heads = 16


class Model(nn.Module):
    """Attend from every position to the positions that its row of the mask allows."""

    def __init__(self, features, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(features, 3 * features)
        self.out = nn.Linear(features, features)

    def forward(self, x, mask):
        batch, length, features = x.shape
        # (batch, length, 3 * features) to three tensors (batch, heads, length, features of a head)
        qkv = self.qkv(x).view(batch, length, 3, self.num_heads, features // self.num_heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
        scores = scores.masked_fill(~mask.unsqueeze(1), float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        context = (weights @ value).transpose(1, 2).reshape(batch, length, features)
        return self.out(context), weights


def get_inputs():
    # Scaled, so that the attention weights are far from uniform.
    x = 2.0 * torch.randn(batch_size, sequence_length, features)
    mask = torch.rand(batch_size, sequence_length, sequence_length) < 0.7
    # Every position may attend to itself, so that no row of the mask is empty.
    mask |= torch.eye(sequence_length, dtype=torch.bool)
    return {"x": x, "mask": mask}


def get_init_inputs():
    return {"features": features, "num_heads": num_heads}
