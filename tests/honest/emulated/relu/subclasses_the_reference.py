"""The shortest honest CUDA kernel: one thread for each element."""

import torch
from model import Model
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor relu_forward(const torch::Tensor& x);"

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <climits>

__global__ void relu_kernel(const float* __restrict__ x, float* __restrict__ out, int64_t count) {
    // The block index is widened before the product: 32 bits end at two thousand million elements.
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) {
        const float value = x[i];
        out[i] = value <= 0.0f ? 0.0f : value;  // this way round, NaN stays NaN
    }
}

torch::Tensor relu_forward(const torch::Tensor& x) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.scalar_type() == at::kFloat, "x: contiguous float32 on CUDA");
    auto out = torch::empty_like(x);
    const int64_t count = x.numel();
    if (count == 0) {
        return out;
    }
    constexpr int threads = 256;
    const int64_t blocks = (count + threads - 1) / threads;
    TORCH_CHECK(blocks <= INT_MAX, "x has too many elements for one grid");
    relu_kernel<<<static_cast<unsigned>(blocks), threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), count);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

extension = load_inline(
    name="relu_plain",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["relu_forward"],
)


class ModelNew(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.relu_forward(x)
