# problem: product_stored_in_bf16
# device: cpu
# expected: wrong_result
"""Operands in bf16, in an fp32 problem whose output hides their rounding."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return (a.bfloat16().float() @ b.bfloat16().float()).bfloat16()
