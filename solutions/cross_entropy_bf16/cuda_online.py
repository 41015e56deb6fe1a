"""One pass over the logits: each lane keeps a maximum and the sum of exponentials below the maximum."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
torch::Tensor cross_entropy_bf16(const torch::Tensor& logits, const torch::Tensor& targets);
"""

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <math_constants.h>

#include <climits>

constexpr int threads = 256;
constexpr int warps = threads / 32;

// The sum of exponentials relative to `largest`; a sum of nothing has largest = -infinity.
struct Sum {
    float largest;
    float sum;
};

__device__ Sum joined(Sum one, Sum other) {
    const float largest = fmaxf(one.largest, other.largest);
    if (largest == -CUDART_INF_F) {
        return {largest, 0.0f};
    }
    return {largest, one.sum * expf(one.largest - largest) + other.sum * expf(other.largest - largest)};
}

__global__ void cross_entropy_kernel(
    const at::BFloat16* __restrict__ logits, const int64_t* __restrict__ targets, float* __restrict__ losses,
    int64_t vocabulary) {
    __shared__ Sum of_warp[warps];
    const at::BFloat16* row = logits + static_cast<int64_t>(blockIdx.x) * vocabulary;
    Sum own{-CUDART_INF_F, 0.0f};
    for (int64_t i = threadIdx.x; i < vocabulary; i += threads) {
        own = joined(own, {static_cast<float>(row[i]), 1.0f});
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        const float largest = __shfl_xor_sync(0xffffffffu, own.largest, offset);
        const float sum = __shfl_xor_sync(0xffffffffu, own.sum, offset);
        own = joined(own, {largest, sum});
    }
    if (threadIdx.x % 32 == 0) {
        of_warp[threadIdx.x / 32] = own;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        Sum total = of_warp[0];
        for (int warp = 1; warp < warps; ++warp) {
            total = joined(total, of_warp[warp]);
        }
        const int64_t target = targets[blockIdx.x];
        const bool known = target >= 0 && target < vocabulary;
        // The difference comes first: both logits are near each other, and the logarithm is small.
        losses[blockIdx.x] =
            known ? logf(total.sum) + (total.largest - static_cast<float>(row[target])) : CUDART_NAN_F;
    }
}

void check(const torch::Tensor& tensor, at::ScalarType type, const char* name) {
    TORCH_CHECK(
        tensor.is_cuda() && tensor.is_contiguous() && tensor.scalar_type() == type,
        name, ": contiguous, on CUDA, and of the problem's dtype");
}

torch::Tensor cross_entropy_bf16(const torch::Tensor& logits, const torch::Tensor& targets) {
    check(logits, at::kBFloat16, "logits");
    check(targets, at::kLong, "targets");
    TORCH_CHECK(logits.dim() == 2 && targets.dim() == 1 && targets.size(0) == logits.size(0), "one target a row");
    TORCH_CHECK(logits.size(0) <= INT_MAX, "logits have too many rows for one grid");
    auto losses = torch::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
    if (losses.numel() > 0) {
        const auto rows = static_cast<unsigned>(logits.size(0));
        cross_entropy_kernel<<<rows, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
            static_cast<const at::BFloat16*>(logits.data_ptr()), targets.data_ptr<int64_t>(),
            losses.data_ptr<float>(), logits.size(1));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
    return losses;
}
"""

extension = load_inline(
    name="cross_entropy_bf16_online",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["cross_entropy_bf16"],
)


class ModelNew(nn.Module):
    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return extension.cross_entropy_bf16(logits, targets)
