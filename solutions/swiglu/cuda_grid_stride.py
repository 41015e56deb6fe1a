"""SwiGLU in one pass: SiLU and product in float, rounded to bfloat16 once."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
torch::Tensor swiglu_forward(const torch::Tensor& gate_and_up);
"""

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <algorithm>

constexpr int threads = 256;
constexpr int64_t most_blocks = 65536;

__global__ void swiglu_kernel(
    const at::BFloat16* __restrict__ gate_and_up, at::BFloat16* __restrict__ out, int64_t count, int64_t width) {
    const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
        const int64_t at = i / width * 2 * width + i % width;
        const float gate = static_cast<float>(gate_and_up[at]);
        const float up = static_cast<float>(gate_and_up[at + width]);
        out[i] = static_cast<at::BFloat16>(gate / (1.0f + expf(-gate)) * up);
    }
}

void check(const torch::Tensor& tensor, at::ScalarType type, const char* name) {
    TORCH_CHECK(
        tensor.is_cuda() && tensor.is_contiguous() && tensor.scalar_type() == type,
        name, ": contiguous, on CUDA, and of the problem's dtype");
}

torch::Tensor swiglu_forward(const torch::Tensor& gate_and_up) {
    check(gate_and_up, at::kBFloat16, "gate_and_up");
    TORCH_CHECK(gate_and_up.dim() == 2 && gate_and_up.size(1) % 2 == 0, "gate_and_up: rows of two halves");
    const int64_t width = gate_and_up.size(1) / 2;
    auto out = torch::empty({gate_and_up.size(0), width}, gate_and_up.options());
    const int64_t count = out.numel();
    if (count > 0) {
        const auto blocks = static_cast<unsigned>(std::min((count + threads - 1) / threads, most_blocks));
        swiglu_kernel<<<blocks, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
            static_cast<const at::BFloat16*>(gate_and_up.data_ptr()), static_cast<at::BFloat16*>(out.data_ptr()),
            count, width);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
    return out;
}
"""

extension = load_inline(
    name="swiglu_grid_stride",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["swiglu_forward"],
)


class ModelNew(nn.Module):
    def forward(self, gate_and_up: torch.Tensor) -> torch.Tensor:
        return extension.swiglu_forward(gate_and_up)
