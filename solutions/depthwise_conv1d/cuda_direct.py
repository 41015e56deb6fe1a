"""A thread for each output: the taps come from the cache, and SiLU is applied before the store."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
torch::Tensor depthwise_conv1d(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);
"""

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <algorithm>

constexpr int threads = 256;
constexpr int64_t most_blocks = 65536;

__global__ void depthwise_conv1d_kernel(
    const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
    float* __restrict__ out, int64_t count, int64_t channels, int64_t length, int64_t taps) {
    const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
        const int64_t time = i % length;
        const int64_t channel = i / length % channels;
        float sum = bias[channel];
        for (int64_t tap = 0; tap < taps; ++tap) {
            const int64_t back = taps - 1 - tap;
            if (back <= time) {
                sum += weight[channel * taps + tap] * x[i - back];
            }
        }
        out[i] = sum / (1.0f + expf(-sum));
    }
}

void check(const torch::Tensor& tensor, at::ScalarType type, const char* name) {
    TORCH_CHECK(
        tensor.is_cuda() && tensor.is_contiguous() && tensor.scalar_type() == type,
        name, ": contiguous, on CUDA, and of the problem's dtype");
}

torch::Tensor depthwise_conv1d(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
    check(x, at::kFloat, "x");
    check(weight, at::kFloat, "weight");
    check(bias, at::kFloat, "bias");
    TORCH_CHECK(x.dim() == 3 && weight.dim() == 3 && weight.size(1) == 1, "x: (batch, channels, length)");
    TORCH_CHECK(weight.size(0) == x.size(1) && bias.numel() == x.size(1), "weight and bias: one for each channel");
    auto out = torch::empty_like(x);
    const int64_t count = x.numel();
    if (count > 0) {
        const auto blocks = static_cast<unsigned>(std::min((count + threads - 1) / threads, most_blocks));
        depthwise_conv1d_kernel<<<blocks, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
            x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), out.data_ptr<float>(), count,
            x.size(1), x.size(2), weight.size(2));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
    return out;
}
"""

extension = load_inline(
    name="depthwise_conv1d_direct",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["depthwise_conv1d"],
)


class ModelNew(nn.Module):
    def __init__(self, channels: int, taps: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, taps))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.depthwise_conv1d(x, self.weight, self.bias)
