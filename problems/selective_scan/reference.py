"""Mamba's selective scan: a linear recurrence whose coefficients depend on the input."""

import torch
from torch import nn
from torch.nn import functional

batch_size = 8
channels = 5120
length = 2048
states = 16


class Model(nn.Module):
    """Steps through time; each channel has several states with decays of their own."""

    def __init__(self, channels: int, states: int) -> None:
        super().__init__()
        self.decay = nn.Parameter(torch.randn(channels, states))
        self.skip = nn.Parameter(torch.randn(channels))

    def forward(
        self, x: torch.Tensor, rate: torch.Tensor, input_gate: torch.Tensor, output_gate: torch.Tensor
    ) -> torch.Tensor:
        step = functional.softplus(rate)
        speed = -torch.exp(self.decay)
        state = x.new_zeros(x.shape[0], *self.decay.shape)
        outputs = []
        # Cut all steps at once: a step then has seven operations, and no slices.
        steps = (step.unsqueeze(3), (step * x).unsqueeze(3), input_gate.unsqueeze(2), output_gate.unsqueeze(2))
        for elapsed, taken, gate_in, gate_out in zip(*(each.unbind(1) for each in steps), strict=True):
            state = torch.exp(elapsed * speed) * state + taken * gate_in
            outputs.append((state * gate_out).sum(dim=-1))
        return torch.stack(outputs, dim=1) + self.skip * x


def get_inputs():
    x = torch.randn(batch_size, length, channels)
    # Slow rates, so that a state lasts for many steps.
    rate = torch.randn(batch_size, length, channels) - 2.0
    input_gate, output_gate = (torch.randn(batch_size, length, states) for _ in range(2))
    return [x, rate, input_gate, output_gate]


def get_init_inputs():
    return [channels, states]
