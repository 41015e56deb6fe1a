"""ReLU launched with 2048 threads in a block; no code checks whether the kernel ran."""

from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor relu_forward(const torch::Tensor& x);"

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void relu_kernel(const float* x, float* out, int64_t count) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) {
        out[i] = x[i] < 0.0f ? 0.0f : x[i];
    }
}

torch::Tensor relu_forward(const torch::Tensor& x) {
    auto out = torch::empty_like(x);
    const int64_t count = x.numel();
    const int threads = 2048;
    const int blocks = static_cast<int>((count + threads - 1) / threads);
    relu_kernel<<<blocks, threads>>>(x.data_ptr<float>(), out.data_ptr<float>(), count);
    return out;
}
"""

extension = load_inline(
    name="corpus_launch_2048",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["relu_forward"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu_forward(x)
