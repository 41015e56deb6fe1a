"""Half the bytes: eight bfloat16 values in one 16-byte load where rows allow it, and every sum in float."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor rms_norm_forward(const torch::Tensor& x, const torch::Tensor& weight, double eps);"

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <climits>

constexpr int threads = 256;
constexpr int warps = threads / 32;

template <int width>
struct alignas(width * sizeof(at::BFloat16)) Pack {
    at::BFloat16 value[width];
};

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
    return total;
}

template <int width>
__global__ void rms_norm_kernel(
    const Pack<width>* __restrict__ x, const Pack<width>* __restrict__ weight, Pack<width>* __restrict__ out,
    int64_t packs, float eps) {
    const Pack<width>* row = x + static_cast<int64_t>(blockIdx.x) * packs;
    Pack<width>* out_row = out + static_cast<int64_t>(blockIdx.x) * packs;

    float squares = 0.0f;
    for (int64_t p = threadIdx.x; p < packs; p += threads) {
        const Pack<width> pack = row[p];
#pragma unroll
        for (int i = 0; i < width; ++i) {
            const float value = static_cast<float>(pack.value[i]);
            squares += value * value;
        }
    }
    const float mean_square = block_sum(squares) / static_cast<float>(packs * width);
    const float scale = 1.0f / sqrtf(mean_square + eps);

    for (int64_t p = threadIdx.x; p < packs; p += threads) {
        const Pack<width> pack = row[p];
        const Pack<width> weights = weight[p];
        Pack<width> result;
#pragma unroll
        for (int i = 0; i < width; ++i) {
            // Rounded once, at the end.
            result.value[i] = static_cast<at::BFloat16>(
                static_cast<float>(pack.value[i]) * scale * static_cast<float>(weights.value[i]));
        }
        out_row[p] = result;
    }
}

template <int width>
void launch(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& out, int64_t dim, float eps) {
    const int64_t rows = x.numel() / dim;
    TORCH_CHECK(rows <= INT_MAX, "x has too many rows for one grid");
    rms_norm_kernel<width><<<static_cast<unsigned>(rows), threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        static_cast<const Pack<width>*>(x.data_ptr()), static_cast<const Pack<width>*>(weight.data_ptr()),
        static_cast<Pack<width>*>(out.data_ptr()), dim / width, eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

template <int width>
bool can_pack(const torch::Tensor& tensor, int64_t dim) {
    return dim % width == 0 && reinterpret_cast<uintptr_t>(tensor.data_ptr()) % alignof(Pack<width>) == 0;
}

void check(const torch::Tensor& tensor, const char* name) {
    TORCH_CHECK(
        tensor.is_cuda() && tensor.is_contiguous() && tensor.scalar_type() == at::kBFloat16,
        name, ": contiguous bfloat16 on CUDA");
}

torch::Tensor rms_norm_forward(const torch::Tensor& x, const torch::Tensor& weight, double eps) {
    check(x, "x");
    check(weight, "weight");
    const int64_t dim = weight.numel();
    TORCH_CHECK(x.dim() >= 1 && x.size(-1) == dim, "weight: one value for each column");
    auto out = torch::empty_like(x);
    if (x.numel() == 0) {
        return out;
    }
    if (can_pack<8>(x, dim) && can_pack<8>(weight, dim) && can_pack<8>(out, dim)) {
        launch<8>(x, weight, out, dim, static_cast<float>(eps));
    } else {
        launch<1>(x, weight, out, dim, static_cast<float>(eps));
    }
    return out;
}
"""

extension = load_inline(
    name="rms_norm_bf16_packed",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["rms_norm_forward"],
)


class ModelNew(nn.Module):
    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden_size).to(torch.bfloat16))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.rms_norm_forward(x, self.weight, self.eps)
