"""The loss, computed from the logits."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        return nn.functional.cross_entropy(logits.float(), targets).to(logits.dtype)
