"""ReLU as a __device__ lambda that the host hands to a kernel template."""

from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor relu_forward(const torch::Tensor& x);"

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

template <typename Function>
__global__ void apply_kernel(const float* __restrict__ x, float* __restrict__ out, int64_t count, Function function) {
    const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
        out[i] = function(x[i]);
    }
}

torch::Tensor relu_forward(const torch::Tensor& x) {
    auto out = torch::empty_like(x);
    const float lowest = 0.0f;
    const auto clamp = [lowest] __device__(float value) { return value < lowest ? lowest : value; };
    apply_kernel<<<512, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), x.numel(), clamp);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

extension = load_inline(
    name="corpus_relu_extended_lambda",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["relu_forward"],
    extra_cuda_cflags=["--extended-lambda", "-O3"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu_forward(x)
