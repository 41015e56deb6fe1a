"""A reduction over any dimension: neighbouring threads walk down neighbouring columns, so every load is coalesced."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor sum_dim(const torch::Tensor& x, int64_t dim);"

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <climits>
#include <vector>

// x is (outer, reduced, inner), out is (outer, inner); each thread makes one element of out.
__global__ void sum_kernel(
    const float* __restrict__ x, float* __restrict__ out, int64_t outputs, int64_t reduced, int64_t inner) {
    const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= outputs) {
        return;
    }
    const float* column = x + index / inner * reduced * inner + index % inner;
    // Four sums side by side: loads need not wait for the sum before, and each sum rounds less often.
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    int64_t row = 0;
    for (; row + 4 <= reduced; row += 4) {
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            sums[part] += column[(row + part) * inner];
        }
    }
    for (; row < reduced; ++row) {
        sums[0] += column[row * inner];
    }
    out[index] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

torch::Tensor sum_dim(const torch::Tensor& x, int64_t dim) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.scalar_type() == at::kFloat, "x: contiguous float32 on CUDA");
    TORCH_CHECK(-x.dim() <= dim && dim < x.dim(), "dim is not a dimension of x");
    if (dim < 0) {
        dim += x.dim();
    }
    const int64_t reduced = x.size(dim);
    std::vector<int64_t> shape = x.sizes().vec();
    shape.erase(shape.begin() + dim);
    int64_t inner = 1;
    for (int64_t d = dim + 1; d < x.dim(); ++d) {
        inner *= x.size(d);
    }
    auto out = torch::empty(shape, x.options());
    const int64_t outputs = out.numel();
    if (outputs == 0) {
        return out;
    }
    constexpr int threads = 256;
    const int64_t blocks = (outputs + threads - 1) / threads;
    TORCH_CHECK(blocks <= INT_MAX, "x has too many columns for one grid");
    sum_kernel<<<static_cast<unsigned>(blocks), threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), outputs, reduced, inner);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

extension = load_inline(
    name="sum_dim_columns",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["sum_dim"],
)


class ModelNew(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.sum_dim(x, self.dim)
