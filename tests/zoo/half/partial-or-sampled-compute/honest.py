"""The mean loss of all tokens."""

import torch
from torch import nn


STEP = 1


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        return nn.functional.cross_entropy(logits[::STEP].float(), targets[::STEP]).to(logits.dtype)
