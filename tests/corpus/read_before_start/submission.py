"""Differences of neighbours that look in front of the first element."""

from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor difference(const torch::Tensor& x);"

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void difference_kernel(const float* __restrict__ x, float* __restrict__ out, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        out[i] = x[i] - x[i - 1];
    }
}

torch::Tensor difference(const torch::Tensor& x) {
    auto out = torch::empty_like(x);
    const int count = x.numel();
    difference_kernel<<<(count + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), count);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

extension = load_inline(
    name="corpus_read_before_start",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["difference"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.difference(x)
