"""Product of two bfloat16 matrices by CUTLASS 3.x: TMA and warp-specialized tensor cores of compute capability 9.0a."""

import collective_gemm
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return collective_gemm.multiply(a.contiguous(), b.contiguous())
