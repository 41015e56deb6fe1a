"""Short walks through a table."""

import torch
from torch import nn

places = 65536
walkers = 32
steps = 512


class Model(nn.Module):
    """Go `steps` steps from `start`, (walkers,), through `table`, (places,), which says where each place leads."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def forward(self, table, start):
        place = start
        for _ in range(self.steps):
            place = table[place]
        return place


def get_inputs():
    return [torch.randperm(places), torch.randint(places, (walkers,))]


def get_init_inputs():
    return [steps]
