"""Cross entropy in Triton: a program for each row, with a running maximum and sum in float32.

A row of Llama 3's vocabulary has 128256 logits, too many for the registers of one program.
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def cross_entropy_kernel(logits, targets, losses, vocabulary, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    own = logits + row.to(tl.int64) * vocabulary
    largest = -float("inf")
    total = 0.0
    for start in range(0, vocabulary, BLOCK):
        i = start + tl.arange(0, BLOCK)
        value = tl.load(own + i, mask=i < vocabulary, other=-float("inf")).to(tl.float32)
        raised = tl.maximum(largest, tl.max(value, axis=0))
        total = total * tl.exp(largest - raised) + tl.sum(tl.exp(value - raised), axis=0)
        largest = raised
    wanted = tl.load(own + tl.load(targets + row)).to(tl.float32)
    tl.store(losses + row, tl.log(total) + (largest - wanted))


class ModelNew(nn.Module):
    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = logits.contiguous()
        tokens, vocabulary = logits.shape
        losses = torch.empty(tokens, device=logits.device, dtype=torch.float32)
        block = min(8192, triton.next_power_of_2(vocabulary))
        if tokens:
            cross_entropy_kernel[(tokens,)](logits, targets, losses, vocabulary, BLOCK=block, num_warps=8)
        return losses
