"""Weighted sums of rows of an embedding table."""

import torch
from torch import nn
from torch.nn import functional

batch_size = 16384
bag_size = 20
table_rows = 2000000
features = 128


class Model(nn.Module):
    """Adds up the numbered rows of each bag, each times its own scale."""

    def __init__(self, table_rows: int, features: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(table_rows, features))

    def forward(self, numbers: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        return functional.embedding_bag(numbers, self.table, mode="sum", per_sample_weights=scales)


def get_inputs():
    return [torch.randint(0, table_rows, (batch_size, bag_size)), torch.randn(batch_size, bag_size)]


def get_init_inputs():
    return [table_rows, features]
