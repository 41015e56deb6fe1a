"""A warp for each query goes through the keys of its window with a running maximum and sum."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
torch::Tensor sliding_window_attention(
    const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value, int64_t window);
"""

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <math_constants.h>

#include <algorithm>
#include <climits>

constexpr int warps = 4;
constexpr int most_features = 256;
constexpr int per_lane = most_features / 32;

__global__ void sliding_window_kernel(
    const at::BFloat16* __restrict__ query, const at::BFloat16* __restrict__ key,
    const at::BFloat16* __restrict__ value, at::BFloat16* __restrict__ out, int64_t queries, int64_t group,
    int64_t length, int features, int64_t window, float scale) {
    const int lane = threadIdx.x % 32;
    const int64_t at = static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / 32;
    if (at >= queries) return;  // whole warps leave: the shuffles below have all lanes
    const int64_t place = at % length;
    const int64_t first = at / length / group * length;  // row of the head's first key
    const int64_t oldest = place + 1 > window ? place + 1 - window : 0;

    float own[per_lane];
    float result[per_lane];
    for (int i = 0; i < per_lane; ++i) {
        const int feature = lane + 32 * i;
        own[i] = feature < features ? static_cast<float>(query[at * features + feature]) * scale : 0.0f;
        result[i] = 0.0f;
    }
    float largest = -CUDART_INF_F;
    float sum = 0.0f;
    for (int64_t each = oldest; each <= place; ++each) {
        const int64_t row = (first + each) * features;
        float score = 0.0f;
        for (int i = 0; i < per_lane; ++i) {
            const int feature = lane + 32 * i;
            if (feature < features) {
                score += own[i] * static_cast<float>(key[row + feature]);
            }
        }
        for (int offset = 16; offset > 0; offset /= 2) {
            score += __shfl_xor_sync(0xffffffffu, score, offset);
        }
        const float next = fmaxf(largest, score);
        const float before = expf(largest - next);  // 0 for the first key
        const float weight = expf(score - next);
        sum = sum * before + weight;
        for (int i = 0; i < per_lane; ++i) {
            const int feature = lane + 32 * i;
            if (feature < features) {
                result[i] = result[i] * before + weight * static_cast<float>(value[row + feature]);
            }
        }
        largest = next;
    }
    for (int i = 0; i < per_lane; ++i) {
        const int feature = lane + 32 * i;
        if (feature < features) {
            out[at * features + feature] = static_cast<at::BFloat16>(result[i] / sum);
        }
    }
}

void check(const torch::Tensor& tensor, at::ScalarType type, const char* name) {
    TORCH_CHECK(
        tensor.is_cuda() && tensor.is_contiguous() && tensor.scalar_type() == type,
        name, ": contiguous, on CUDA, and of the problem's dtype");
}

torch::Tensor sliding_window_attention(
    const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value, int64_t window) {
    check(query, at::kBFloat16, "query");
    check(key, at::kBFloat16, "key");
    check(value, at::kBFloat16, "value");
    TORCH_CHECK(query.dim() == 4 && key.dim() == 4 && value.sizes() == key.sizes(), "all: (batch, heads, length, features)");
    TORCH_CHECK(
        key.size(0) == query.size(0) && key.size(2) == query.size(2) && key.size(3) == query.size(3),
        "query and key differ in batch, length or features");
    TORCH_CHECK(key.size(1) > 0 && query.size(1) % key.size(1) == 0, "query heads: a multiple of key heads");
    TORCH_CHECK(window >= 1 && query.size(3) <= most_features, "a window of 1 at least, and 256 features at most");
    auto out = torch::empty_like(query);
    if (query.numel() > 0) {
        const int64_t queries = query.numel() / query.size(3);
        const int64_t blocks = (queries + warps - 1) / warps;
        TORCH_CHECK(blocks <= INT_MAX, "too many queries for one grid");
        sliding_window_kernel<<<static_cast<unsigned>(blocks), warps * 32, 0, at::cuda::getCurrentCUDAStream()>>>(
            static_cast<const at::BFloat16*>(query.data_ptr()), static_cast<const at::BFloat16*>(key.data_ptr()),
            static_cast<const at::BFloat16*>(value.data_ptr()), static_cast<at::BFloat16*>(out.data_ptr()), queries,
            query.size(1) / key.size(1), query.size(2), static_cast<int>(query.size(3)), window,
            1.0f / sqrtf(static_cast<float>(query.size(3))));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
    return out;
}
"""

extension = load_inline(
    name="sliding_window_warp_per_query",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["sliding_window_attention"],
)


class ModelNew(nn.Module):
    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return extension.sliding_window_attention(query, key, value, self.window)
