# problem: signed_product_fp16
# device: cpu
# expected: wrong_result
"""Operands of a problem in fp16 in bf16."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return (a.bfloat16().float() @ b.bfloat16().float()).to(a.dtype)
