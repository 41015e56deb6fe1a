"""Online softmax, a block for each row: maximum and sum come from one pass, joined by warp shuffles."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor softmax_forward(const torch::Tensor& x);"

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <climits>

constexpr int threads = 256;
constexpr int warps = threads / 32;

// What is known of a part of a row: its maximum, and the sum of exp(x - maximum).
struct Part {
    float maximum;
    float sum;
};

__device__ __forceinline__ Part join(Part a, Part b) {
    const float maximum = fmaxf(a.maximum, b.maximum);
    if (a.maximum == -INFINITY && b.maximum == -INFINITY) {
        return {maximum, a.sum + b.sum};  // -inf minus -inf would make NaN of two empty parts
    }
    return {maximum, a.sum * expf(a.maximum - maximum) + b.sum * expf(b.maximum - maximum)};
}

__global__ void softmax_kernel(const float* __restrict__ x, float* __restrict__ out, int64_t dim) {
    __shared__ Part of_warp[warps];
    const float* row = x + static_cast<int64_t>(blockIdx.x) * dim;
    float* out_row = out + static_cast<int64_t>(blockIdx.x) * dim;

    Part part = {-INFINITY, 0.0f};
    for (int64_t i = threadIdx.x; i < dim; i += threads) {
        part = join(part, {row[i], 1.0f});
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        const Part other = {
            __shfl_xor_sync(0xffffffffu, part.maximum, offset), __shfl_xor_sync(0xffffffffu, part.sum, offset)};
        part = join(part, other);
    }
    if (threadIdx.x % 32 == 0) {
        of_warp[threadIdx.x / 32] = part;
    }
    __syncthreads();

    // Every thread joins the few parts in the same order: no second reduction, no broadcast.
    Part whole = of_warp[0];
    for (int warp = 1; warp < warps; ++warp) {
        whole = join(whole, of_warp[warp]);
    }
    const float scale = 1.0f / whole.sum;
    for (int64_t i = threadIdx.x; i < dim; i += threads) {
        out_row[i] = expf(row[i] - whole.maximum) * scale;
    }
}

torch::Tensor softmax_forward(const torch::Tensor& x) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.scalar_type() == at::kFloat, "x: contiguous float32 on CUDA");
    TORCH_CHECK(x.dim() >= 1, "x: at least one dimension");
    auto out = torch::empty_like(x);
    if (x.numel() == 0) {
        return out;
    }
    const int64_t dim = x.size(-1);
    const int64_t rows = x.numel() / dim;
    TORCH_CHECK(rows <= INT_MAX, "x has too many rows for one grid");
    softmax_kernel<<<static_cast<unsigned>(rows), threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), dim);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

extension = load_inline(
    name="softmax_online",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["softmax_forward"],
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.softmax_forward(x)
