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
        for time in range(x.shape[1]):
            kept = torch.exp(step[:, time, :, None] * speed)
            taken = (step[:, time] * x[:, time])[:, :, None] * input_gate[:, time, None, :]
            state = kept * state + taken
            outputs.append((state * output_gate[:, time, None, :]).sum(dim=-1))
        return torch.stack(outputs, dim=1) + self.skip * x


def get_inputs():
    x = torch.randn(batch_size, length, channels)
    # Slow rates, so that a state lasts for many steps.
    rate = torch.randn(batch_size, length, channels) - 2.0
    input_gate, output_gate = (torch.randn(batch_size, length, states) for _ in range(2))
    return [x, rate, input_gate, output_gate]


def get_init_inputs():
    return [channels, states]
