"""A warp for each element of the output unpacks a byte into two weights at a time."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
torch::Tensor w4a16_matmul(
    const torch::Tensor& x, const torch::Tensor& codes, const torch::Tensor& scales, int64_t group);
"""

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <climits>

constexpr int warps = 4;

__global__ void w4a16_kernel(
    const at::BFloat16* __restrict__ x, const uint8_t* __restrict__ codes, const at::BFloat16* __restrict__ scales,
    at::BFloat16* __restrict__ out, int64_t elements, int64_t inputs, int64_t outputs, int64_t group) {
    const int lane = threadIdx.x % 32;
    const int64_t at = static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / 32;
    if (at >= elements) return;  // a whole warp at once, so the shuffles below miss no lane
    const at::BFloat16* row = x + at / outputs * inputs;
    const uint8_t* own_codes = codes + at % outputs * (inputs / 2);
    const at::BFloat16* own_scales = scales + at % outputs * (inputs / group);
    float sum = 0.0f;
    for (int64_t pair = lane; pair < inputs / 2; pair += 32) {
        const int code = own_codes[pair];
        const float scale = static_cast<float>(own_scales[2 * pair / group]);
        sum += static_cast<float>(row[2 * pair]) * (static_cast<float>((code & 15) - 8) * scale);
        sum += static_cast<float>(row[2 * pair + 1]) * (static_cast<float>((code >> 4) - 8) * scale);
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    }
    if (lane == 0) {
        out[at] = static_cast<at::BFloat16>(sum);
    }
}

void check(const torch::Tensor& tensor, at::ScalarType type, const char* name) {
    TORCH_CHECK(
        tensor.is_cuda() && tensor.is_contiguous() && tensor.scalar_type() == type,
        name, ": contiguous, on CUDA, and of the problem's dtype");
}

torch::Tensor w4a16_matmul(
    const torch::Tensor& x, const torch::Tensor& codes, const torch::Tensor& scales, int64_t group) {
    check(x, at::kBFloat16, "x");
    check(codes, at::kByte, "codes");
    check(scales, at::kBFloat16, "scales");
    TORCH_CHECK(x.dim() == 2 && codes.dim() == 2 && scales.dim() == 2, "x, codes and scales: matrices");
    const int64_t inputs = x.size(1);
    const int64_t outputs = codes.size(0);
    TORCH_CHECK(group > 0 && group % 2 == 0 && inputs % group == 0, "inputs: groups of an even size");
    TORCH_CHECK(codes.size(1) == inputs / 2 && scales.size(0) == outputs, "codes: two in a byte");
    TORCH_CHECK(scales.size(1) == inputs / group, "scales: one for each group");
    auto out = torch::empty({x.size(0), outputs}, x.options());
    const int64_t blocks = (out.numel() + warps - 1) / warps;
    TORCH_CHECK(blocks <= INT_MAX, "too many elements for one grid");
    if (blocks > 0) {
        w4a16_kernel<<<static_cast<unsigned>(blocks), warps * 32, 0, at::cuda::getCurrentCUDAStream()>>>(
            static_cast<const at::BFloat16*>(x.data_ptr()), codes.data_ptr<uint8_t>(),
            static_cast<const at::BFloat16*>(scales.data_ptr()), static_cast<at::BFloat16*>(out.data_ptr()),
            out.numel(), inputs, outputs, group);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
    return out;
}
"""

extension = load_inline(
    name="w4a16_matmul_warp_per_element",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["w4a16_matmul"],
)


class ModelNew(nn.Module):
    def __init__(self, group: int) -> None:
        super().__init__()
        self.group = group

    def forward(self, x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        return extension.w4a16_matmul(x, codes, scales, self.group)
