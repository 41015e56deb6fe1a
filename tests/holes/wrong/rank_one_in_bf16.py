# problem: positive_product_bf16
# device: cpu
# expected: wrong_result
"""Row means times column sums, each rounded to bf16 first."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        rows = a.sum(1, keepdim=True, dtype=torch.float32) / a.shape[1]
        return rows.to(a.dtype) * b.sum(0, dtype=torch.float32).to(a.dtype)
