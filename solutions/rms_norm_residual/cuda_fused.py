"""Sum and RMSNorm in one kernel; a block for each row, with every sum in float."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
std::vector<torch::Tensor> rms_norm_residual(
    const torch::Tensor& x, const torch::Tensor& residual, const torch::Tensor& weight, double eps);
"""

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <climits>

constexpr int threads = 256;
constexpr int warps = threads / 32;

// The sum over all threads of the block, returned to each of them.
__device__ float block_sum(float value) {
    __shared__ float of_warp[warps];
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    }
    if (threadIdx.x % 32 == 0) {
        of_warp[threadIdx.x / 32] = value;
    }
    __syncthreads();
    float total = 0.0f;
    for (int warp = 0; warp < warps; ++warp) {
        total += of_warp[warp];
    }
    __syncthreads();  // the next call writes to of_warp again
    return total;
}

__global__ void rms_norm_residual_kernel(
    const at::BFloat16* __restrict__ x, const at::BFloat16* __restrict__ residual,
    const at::BFloat16* __restrict__ weight, at::BFloat16* __restrict__ out, at::BFloat16* __restrict__ total,
    int64_t dim, float eps) {
    const int64_t row = static_cast<int64_t>(blockIdx.x) * dim;
    float squares = 0.0f;
    for (int64_t i = threadIdx.x; i < dim; i += threads) {
        const float sum = static_cast<float>(x[row + i]) + static_cast<float>(residual[row + i]);
        total[row + i] = static_cast<at::BFloat16>(sum);
        squares += sum * sum;
    }
    const float scale = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(dim) + eps);
    for (int64_t i = threadIdx.x; i < dim; i += threads) {
        // Added again, so that the sum is not rounded before the norm.
        const float sum = static_cast<float>(x[row + i]) + static_cast<float>(residual[row + i]);
        out[row + i] = static_cast<at::BFloat16>(sum * scale * static_cast<float>(weight[i]));
    }
}

void check(const torch::Tensor& tensor, at::ScalarType type, const char* name) {
    TORCH_CHECK(
        tensor.is_cuda() && tensor.is_contiguous() && tensor.scalar_type() == type,
        name, ": contiguous, on CUDA, and of the problem's dtype");
}

std::vector<torch::Tensor> rms_norm_residual(
    const torch::Tensor& x, const torch::Tensor& residual, const torch::Tensor& weight, double eps) {
    check(x, at::kBFloat16, "x");
    check(residual, at::kBFloat16, "residual");
    check(weight, at::kBFloat16, "weight");
    const int64_t dim = weight.numel();
    TORCH_CHECK(x.dim() == 2 && x.size(1) == dim && residual.sizes() == x.sizes(), "x and residual: rows of dim");
    TORCH_CHECK(x.size(0) <= INT_MAX, "x has too many rows for one grid");
    auto out = torch::empty_like(x);
    auto total = torch::empty_like(x);
    if (x.numel() > 0) {
        rms_norm_residual_kernel<<<static_cast<unsigned>(x.size(0)), threads, 0, at::cuda::getCurrentCUDAStream()>>>(
            static_cast<const at::BFloat16*>(x.data_ptr()), static_cast<const at::BFloat16*>(residual.data_ptr()),
            static_cast<const at::BFloat16*>(weight.data_ptr()), static_cast<at::BFloat16*>(out.data_ptr()),
            static_cast<at::BFloat16*>(total.data_ptr()), dim, static_cast<float>(eps));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
    return {out, total};
}
"""

extension = load_inline(
    name="rms_norm_residual_fused",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["rms_norm_residual"],
)


class ModelNew(nn.Module):
    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden_size).to(torch.bfloat16))
        self.eps = eps

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out, total = extension.rms_norm_residual(x, residual, self.weight, self.eps)
        return out, total
