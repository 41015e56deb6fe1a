"""PyTorch's convolution, then bias and ReLU in one pass; a block keeps to one channel, so nothing is divided."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

cpp_source = "torch::Tensor bias_relu(torch::Tensor x, torch::Tensor bias);"

cuda_source = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

constexpr int kThreads = 256;

// One block for one channel of one image.
__global__ void bias_relu_kernel(
    const float* __restrict__ x, const float* __restrict__ bias, float* __restrict__ y,
    int channels, int64_t plane_size) {
    const float added = bias[blockIdx.x % channels];
    const float* plane_in = x + blockIdx.x * plane_size;
    float* plane_out = y + blockIdx.x * plane_size;
    for (int64_t i = threadIdx.x; i < plane_size; i += kThreads) {
        const float value = plane_in[i] + added;
        plane_out[i] = value < 0.0f ? 0.0f : value;  // keeps NaN, as torch.relu does; fmaxf would not
    }
}

torch::Tensor bias_relu(torch::Tensor x, torch::Tensor bias) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32, "x must be a float32 CUDA tensor");
    TORCH_CHECK(bias.device() == x.device() && bias.scalar_type() == torch::kFloat32, "bias must be like x");
    TORCH_CHECK(x.dim() == 4 && bias.numel() == x.size(1), "bias must have one value for each channel of x");
    const at::cuda::CUDAGuard device_guard(x.device());
    const auto input = x.contiguous();
    const auto added = bias.contiguous();
    auto output = torch::empty_like(input);
    if (output.numel() == 0) return output;

    const int64_t planes = input.size(0) * input.size(1);
    TORCH_CHECK(planes <= INT32_MAX, "too many planes for one grid");
    const auto blocks = static_cast<unsigned>(planes);
    bias_relu_kernel<<<blocks, kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
        input.data_ptr<float>(), added.data_ptr<float>(), output.data_ptr<float>(),
        static_cast<int>(input.size(1)), input.size(2) * input.size(3));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return output;
}
"""

extension = load_inline(
    name="conv2d_bias_relu_cuda_fused_epilogue",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["bias_relu"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, padding):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=padding, bias=False)
        self.bias = nn.Parameter(0.5 * torch.randn(out_channels, 1, 1))

    def forward(self, x):
        return extension.bias_relu(self.conv(x), self.bias)
