"""LayerNorm, a block for each row: mean first, then the variance about it, so that nothing cancels."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
torch::Tensor layer_norm_forward(
    const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, double eps);
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

__global__ void layer_norm_kernel(
    const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
    float* __restrict__ out, int64_t dim, float eps) {
    // A row of a few thousand elements stays in the L1 cache: main memory sees one read and one write.
    const float* row = x + static_cast<int64_t>(blockIdx.x) * dim;
    float* out_row = out + static_cast<int64_t>(blockIdx.x) * dim;

    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < dim; i += threads) {
        sum += row[i];
    }
    const float mean = block_sum(sum) / static_cast<float>(dim);

    float squares = 0.0f;
    for (int64_t i = threadIdx.x; i < dim; i += threads) {
        const float difference = row[i] - mean;
        squares += difference * difference;
    }
    const float variance = block_sum(squares) / static_cast<float>(dim);
    const float scale = 1.0f / sqrtf(variance + eps);

    for (int64_t i = threadIdx.x; i < dim; i += threads) {
        out_row[i] = (row[i] - mean) * scale * weight[i] + bias[i];
    }
}

void check(const torch::Tensor& tensor, const char* name) {
    TORCH_CHECK(
        tensor.is_cuda() && tensor.is_contiguous() && tensor.scalar_type() == at::kFloat,
        name, ": contiguous float32 on CUDA");
}

torch::Tensor layer_norm_forward(
    const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, double eps) {
    check(x, "x");
    check(weight, "weight");
    check(bias, "bias");
    const int64_t dim = weight.numel();
    TORCH_CHECK(x.dim() >= 1 && x.size(-1) == dim && bias.numel() == dim, "weight and bias: one value for each column");
    auto out = torch::empty_like(x);
    if (x.numel() == 0) {
        return out;
    }
    const int64_t rows = x.numel() / dim;
    TORCH_CHECK(rows <= INT_MAX, "x has too many rows for one grid");
    layer_norm_kernel<<<static_cast<unsigned>(rows), threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), out.data_ptr<float>(), dim,
        static_cast<float>(eps));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

extension = load_inline(
    name="layer_norm_two_pass",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["layer_norm_forward"],
)


class ModelNew(nn.Module):
    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden_size))
        self.bias = nn.Parameter(torch.randn(hidden_size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.layer_norm_forward(x, self.weight, self.bias, self.eps)
