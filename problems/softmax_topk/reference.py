"""Routing to experts: the largest logits of each row, and the softmax over them."""

import torch
from torch import nn

tokens = 65536
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
    # Each row has its own order of the experts, and neighbours lie an eighth apart at least: which experts are chosen
    # does not hang on the last place of a logit.
    order = torch.rand(tokens, experts).argsort(dim=-1)
    return [(order + 0.5 * torch.rand(tokens, experts)) / 4 - experts / 8]


def get_init_inputs():
    return [chosen]
