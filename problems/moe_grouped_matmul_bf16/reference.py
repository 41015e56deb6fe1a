"""Products of groups of tokens with the weights of their experts, in bfloat16."""

import torch
from torch import nn

tokens = 8192
experts = 32
hidden_size = 2048
expert_size = 768


class Model(nn.Module):
    """Multiply each token by the weights of its expert. Tokens are sorted by expert."""

    def __init__(self, experts: int, hidden_size: int, expert_size: int) -> None:
        super().__init__()
        weight = torch.randn(experts, expert_size, hidden_size) / hidden_size**0.5
        self.weight = nn.Parameter(weight.to(torch.bfloat16))
        # Sums are computed in the dtype of this buffer: fp32, as in tensor cores.
        self.register_buffer("total", torch.zeros(()), persistent=False)

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        """Return one row for each row of `x`. `ends` holds the end of each expert's group of rows."""
        bounds = [0, *ends.tolist()]
        wide = x.to(self.total.dtype)
        groups = zip(bounds[:-1], bounds[1:], self.weight, strict=True)
        return torch.cat([wide[start:end] @ weight.to(wide.dtype).T for start, end, weight in groups]).to(x.dtype)


def get_inputs():
    # A router prefers some experts: groups differ in size, and the least likely expert may have no token.
    likely = torch.softmax(torch.randn(experts), 0)
    counts = torch.bincount(torch.multinomial(likely, tokens, replacement=True), minlength=experts)
    ends = counts.cumsum(0).to(torch.int32)
    return [torch.randn(tokens, hidden_size).to(torch.bfloat16), ends]


def get_init_inputs():
    return [experts, hidden_size, expert_size]
