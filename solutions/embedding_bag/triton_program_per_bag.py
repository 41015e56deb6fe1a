"""Embedding bags in Triton: a program adds up the rows of one bag, with a whole row in its registers."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def embedding_bag_kernel(numbers, scales, table, out, bag_size, features, FEATURES: tl.constexpr):
    bag = tl.program_id(0).to(tl.int64)
    feature = tl.arange(0, FEATURES)
    total = tl.zeros((FEATURES,), dtype=tl.float32)
    for i in range(bag_size):
        number = tl.load(numbers + bag * bag_size + i)  # 64 bits: a table of two million rows exceeds 2**31 bytes
        row = tl.load(table + number * features + feature, mask=feature < features, other=0.0)
        total += tl.load(scales + bag * bag_size + i) * row
    tl.store(out + bag * features + feature, total, mask=feature < features)


class ModelNew(nn.Module):
    def __init__(self, table_rows: int, features: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(table_rows, features))

    def forward(self, numbers: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        numbers, scales = numbers.contiguous(), scales.contiguous()
        bags, bag_size = numbers.shape
        features = self.table.shape[1]
        out = torch.empty(bags, features, device=scales.device, dtype=scales.dtype)
        if bags:
            wide = triton.next_power_of_2(features)
            embedding_bag_kernel[(bags,)](numbers, scales, self.table, out, bag_size, features, wide, num_warps=1)
        return out
