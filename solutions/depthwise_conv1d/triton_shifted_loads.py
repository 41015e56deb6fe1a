"""A causal depthwise convolution in Triton: the taps are loads shifted in time, which the L1 cache answers."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 1024


@triton.jit
def conv1d_kernel(x, weight, bias, out, channels, length, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    blocks = tl.cdiv(length, BLOCK)
    row = tl.program_id(0) // blocks  # of all sequences and channels
    channel = row % channels
    time = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    own = row.to(tl.int64) * length + time
    total = tl.zeros((BLOCK,), dtype=tl.float32) + tl.load(bias + channel)
    for tap in tl.static_range(TAPS):
        back = TAPS - 1 - tap
        past = tl.load(x + own - back, mask=(time >= back) & (time < length), other=0.0)
        total += tl.load(weight + channel * TAPS + tap) * past
    tl.store(out + own, total / (1.0 + tl.exp(-total)), mask=time < length)


class ModelNew(nn.Module):
    def __init__(self, channels: int, taps: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, taps))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        batch, channels, length = x.shape
        out = torch.empty_like(x)
        if x.numel():
            grid = (batch * channels * triton.cdiv(length, BLOCK),)
            conv1d_kernel[grid](x, self.weight, self.bias, out, channels, length, self.weight.shape[2], BLOCK=BLOCK)
        return out
