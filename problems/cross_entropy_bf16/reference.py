"""Cross entropy of each token: bfloat16 logits, float32 losses."""

import torch
from torch import nn
from torch.nn import functional

tokens = 8192
vocabulary = 128256


class Model(nn.Module):
    """Returns the negative log-likelihood of each row's target, computed in float32."""

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return functional.cross_entropy(wide, targets, reduction="none")


def get_inputs():
    # Scaled, so that the losses are far from the logarithm of the vocabulary's size.
    logits = (3.0 * torch.randn(tokens, vocabulary)).to(torch.bfloat16)
    return [logits, torch.randint(0, vocabulary, (tokens,))]


def get_init_inputs():
    return []
