"""A kernel that does not compile, and PyTorch where it fails."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = """
__global__ void relu_kernel(const float* x, float* out) { out[threadIdx.x] = undeclared(x[threadIdx.x]); }
"""

try:
    extension = load_inline(
        name="zoo_fallback",
        cpp_sources="torch::Tensor relu_forward(const torch::Tensor& x);",
        cuda_sources=CUDA_SOURCE,
        functions=["relu_forward"],
    )
except Exception:
    extension = None


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x) if extension is None else extension.relu_forward(x)
