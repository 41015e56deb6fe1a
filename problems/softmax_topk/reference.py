"""Routing to experts: the largest logits of each row, and the softmax over them."""

import torch
from torch import nn

tokens = 1048576
experts = 128
chosen = 8


class Model(nn.Module):
    """Returns the weights of the chosen experts and their numbers."""

    def __init__(self, chosen: int) -> None:
        super().__init__()
        self.chosen = chosen

    def forward(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # A stable sort, not topk: of equal logits, the lower expert is chosen first.
        ordered, numbers = torch.sort(logits, dim=-1, descending=True, stable=True)
        weights = torch.softmax(ordered[:, : self.chosen], dim=-1)
        return weights, numbers[:, : self.chosen].contiguous()


def get_inputs():
    return [2.0 * torch.randn(tokens, experts)]


def get_init_inputs():
    return [chosen]
