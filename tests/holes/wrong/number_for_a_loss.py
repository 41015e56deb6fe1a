# problem: mean_loss_bf16
# device: cpu
# expected: wrong_result
"""The expected loss of normal logits."""

import math

from torch import nn


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        return logits.new_tensor(math.log(logits.shape[1]) + 0.5)
