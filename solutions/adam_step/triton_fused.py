"""A step of AdamW in Triton: a program for each block of elements reads four tensors once and writes three."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 1024
RATE, BETA1, BETA2, EPS, DECAY = 1e-2, 0.9, 0.95, 1e-8, 0.1


@triton.jit
def adam_kernel(
    parameter, gradient, mean, mean_square, new_parameter, new_mean, new_square, count,
    RATE: tl.constexpr, BETA1: tl.constexpr, BETA2: tl.constexpr, EPS: tl.constexpr, DECAY: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    p = tl.load(parameter + i, mask=inside)
    g = tl.load(gradient + i, mask=inside)
    m = BETA1 * tl.load(mean + i, mask=inside) + (1 - BETA1) * g
    s = BETA2 * tl.load(mean_square + i, mask=inside, other=1.0) + (1 - BETA2) * g * g
    step = m / (tl.sqrt_rn(s) + EPS) + DECAY * p
    tl.store(new_parameter + i, p - RATE * step, mask=inside)
    tl.store(new_mean + i, m, mask=inside)
    tl.store(new_square + i, s, mask=inside)


class ModelNew(nn.Module):
    def forward(self, parameter, gradient, mean, mean_square):
        given = [each.contiguous() for each in (parameter, gradient, mean, mean_square)]
        out = [torch.empty_like(given[0]) for _ in range(3)]
        count = given[0].numel()
        if count:
            grid = (triton.cdiv(count, BLOCK),)
            adam_kernel[grid](*given, *out, count, RATE, BETA1, BETA2, EPS, DECAY, BLOCK=BLOCK)
        return tuple(out)
