"""A block for each query head: every warp takes every fourth key, and the warps' sums are joined at the end."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
torch::Tensor gqa_decode(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value);
"""

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <math_constants.h>

#include <climits>

constexpr int warps = 4;
constexpr int most_features = 256;
constexpr int per_lane = most_features / 32;

__global__ void gqa_decode_kernel(
    const at::BFloat16* __restrict__ query, const at::BFloat16* __restrict__ key,
    const at::BFloat16* __restrict__ value, at::BFloat16* __restrict__ out, int64_t group, int64_t length,
    int features, float scale) {
    __shared__ float largest_of[warps];
    __shared__ float sum_of[warps];
    __shared__ float result_of[warps][most_features];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int64_t head = blockIdx.x;  // of all sequences; heads of a group are neighbours, as are their sequences
    const int64_t first = head / group * length * features;

    float own[per_lane];
    float result[per_lane];
    for (int i = 0; i < per_lane; ++i) {
        const int feature = lane + 32 * i;
        own[i] = feature < features ? static_cast<float>(query[head * features + feature]) * scale : 0.0f;
        result[i] = 0.0f;
    }
    float largest = -CUDART_INF_F;
    float sum = 0.0f;
    for (int64_t place = warp; place < length; place += warps) {
        const int64_t row = first + place * features;
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
        result_of[warp][lane + 32 * i] = result[i];
    }
    if (lane == 0) {
        largest_of[warp] = largest;
        sum_of[warp] = sum;
    }
    __syncthreads();
    float most = largest_of[0];
    for (int each = 1; each < warps; ++each) {
        most = fmaxf(most, largest_of[each]);
    }
    for (int feature = threadIdx.x; feature < features; feature += warps * 32) {
        float total = 0.0f;
        float weights = 0.0f;
        for (int each = 0; each < warps; ++each) {
            const float part = expf(largest_of[each] - most);
            total += part * result_of[each][feature];
            weights += part * sum_of[each];
        }
        out[head * features + feature] = static_cast<at::BFloat16>(total / weights);
    }
}

void check(const torch::Tensor& tensor, at::ScalarType type, const char* name) {
    TORCH_CHECK(
        tensor.is_cuda() && tensor.is_contiguous() && tensor.scalar_type() == type,
        name, ": contiguous, on CUDA, and of the problem's dtype");
}

torch::Tensor gqa_decode(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value) {
    check(query, at::kBFloat16, "query");
    check(key, at::kBFloat16, "key");
    check(value, at::kBFloat16, "value");
    TORCH_CHECK(query.dim() == 3 && key.dim() == 4 && value.sizes() == key.sizes(), "query: (batch, heads, features)");
    const int64_t heads = query.size(0) * query.size(1);
    const int64_t features = query.size(2);
    TORCH_CHECK(key.size(0) == query.size(0) && key.size(3) == features, "key: (batch, heads, length, features)");
    TORCH_CHECK(key.size(1) > 0 && query.size(1) % key.size(1) == 0, "query heads: a multiple of key heads");
    TORCH_CHECK(features <= most_features && heads <= INT_MAX && key.size(2) > 0, "at most 256 features, and a key");
    auto out = torch::empty_like(query);
    if (query.numel() > 0) {
        gqa_decode_kernel<<<static_cast<unsigned>(heads), warps * 32, 0, at::cuda::getCurrentCUDAStream()>>>(
            static_cast<const at::BFloat16*>(query.data_ptr()), static_cast<const at::BFloat16*>(key.data_ptr()),
            static_cast<const at::BFloat16*>(value.data_ptr()), static_cast<at::BFloat16*>(out.data_ptr()),
            query.size(1) / key.size(1), key.size(2), static_cast<int>(features),
            1.0f / sqrtf(static_cast<float>(features)));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
    return out;
}
"""

extension = load_inline(
    name="gqa_decode_online",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["gqa_decode"],
)


class ModelNew(nn.Module):
    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return extension.gqa_decode(query, key, value)
