# problem: mean_loss_bf16
# device: cpu
# expected: wrong_result
"""The mean over every sixteenth token."""

from torch import nn
from torch.nn import functional


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        return functional.cross_entropy(logits[::16].float(), targets[::16]).to(logits.dtype)
