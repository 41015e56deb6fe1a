"""Product of bfloat16 activations with weights of four bits and scales of groups."""

import torch
from torch import nn

tokens = 1024
inputs = 4096
outputs = 14336
group = 128


class Model(nn.Module):
    """Multiplies by `(code - 8) * scale`; the lower four bits of a byte come first."""

    def __init__(self, group: int) -> None:
        super().__init__()
        self.group = group

    def forward(self, x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        # In float32, rounded once: with rounded weights, the tolerance would be far wider.
        wide = torch.promote_types(x.dtype, torch.float32)
        numbers = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(1).to(wide) - 8
        weight = numbers * scales.to(wide).repeat_interleave(self.group, dim=1)
        return (x.to(wide) @ weight.T).to(x.dtype)


def get_inputs():
    x = torch.randn(tokens, inputs).to(torch.bfloat16)
    codes = torch.randint(0, 256, (outputs, inputs // 2)).to(torch.uint8)
    scales = (0.01 * torch.exp(0.5 * torch.randn(outputs, inputs // group))).to(torch.bfloat16)
    return [x, codes, scales]


def get_init_inputs():
    return [group]
