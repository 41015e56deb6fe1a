"""RMSNorm in one kernel: square, mean, root, scale and weight without a temporary tensor between them."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor rms_norm_forward(const torch::Tensor& x, const torch::Tensor& weight, double eps);"

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <climits>

constexpr int threads = 256;

__global__ void rms_norm_kernel(
    const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out, int64_t dim, float eps) {
    __shared__ float partial[threads];
    const float* row = x + static_cast<int64_t>(blockIdx.x) * dim;
    float* out_row = out + static_cast<int64_t>(blockIdx.x) * dim;

    float squares = 0.0f;
    for (int64_t i = threadIdx.x; i < dim; i += threads) {
        squares += row[i] * row[i];
    }
    // A tree in shared memory: each step adds the upper half to the lower one.
    partial[threadIdx.x] = squares;
    __syncthreads();
    for (int distance = threads / 2; distance > 0; distance /= 2) {
        if (threadIdx.x < distance) {
            partial[threadIdx.x] += partial[threadIdx.x + distance];
        }
        __syncthreads();  // outside the branch: every thread of the block has to come here
    }
    const float scale = 1.0f / sqrtf(partial[0] / static_cast<float>(dim) + eps);

    for (int64_t i = threadIdx.x; i < dim; i += threads) {
        out_row[i] = row[i] * scale * weight[i];
    }
}

void check(const torch::Tensor& tensor, const char* name) {
    TORCH_CHECK(
        tensor.is_cuda() && tensor.is_contiguous() && tensor.scalar_type() == at::kFloat,
        name, ": contiguous float32 on CUDA");
}

torch::Tensor rms_norm_forward(const torch::Tensor& x, const torch::Tensor& weight, double eps) {
    check(x, "x");
    check(weight, "weight");
    const int64_t dim = weight.numel();
    TORCH_CHECK(x.dim() >= 1 && x.size(-1) == dim, "weight: one value for each column");
    auto out = torch::empty_like(x);
    if (x.numel() == 0) {
        return out;
    }
    const int64_t rows = x.numel() / dim;
    TORCH_CHECK(rows <= INT_MAX, "x has too many rows for one grid");
    rms_norm_kernel<<<static_cast<unsigned>(rows), threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), weight.data_ptr<float>(), out.data_ptr<float>(), dim, static_cast<float>(eps));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

extension = load_inline(
    name="rms_norm_fused",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["rms_norm_forward"],
)


class ModelNew(nn.Module):
    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden_size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.rms_norm_forward(x, self.weight, self.eps)
