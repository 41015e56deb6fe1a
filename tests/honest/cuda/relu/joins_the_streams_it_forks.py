"""Three streams of its own work on a third each; they wait for PyTorch's stream, and it waits for them."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.streams = [torch.cuda.Stream() for _ in range(3)]

    def forward(self, x):
        y, here = torch.empty_like(x), torch.cuda.current_stream()
        for stream, source, target in zip(self.streams, x.chunk(3), y.chunk(3), strict=True):
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                torch.clamp(source, min=0.0, out=target)
            here.wait_stream(stream)
        return y
