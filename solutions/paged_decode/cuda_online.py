"""A block for each query head: every warp takes every fourth key and looks up its page; the warps' sums are joined."""

from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
torch::Tensor paged_decode(
    const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value, const torch::Tensor& pages,
    const torch::Tensor& lengths);
"""

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <math_constants.h>

#include <climits>

constexpr int warps = 4;
constexpr int most_features = 256;
constexpr int per_lane = most_features / 32;

__global__ void paged_decode_kernel(
    const at::BFloat16* __restrict__ query, const at::BFloat16* __restrict__ key,
    const at::BFloat16* __restrict__ value, const int64_t* __restrict__ pages, const int64_t* __restrict__ lengths,
    at::BFloat16* __restrict__ out, int64_t query_heads, int64_t key_heads, int64_t page_size,
    int64_t pages_of_sequence, int features, float scale) {
    __shared__ float largest_of[warps];
    __shared__ float sum_of[warps];
    __shared__ float result_of[warps][most_features];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int64_t head = blockIdx.x;  // of all sequences
    const int64_t sequence = head / query_heads;
    const int64_t key_head = head % query_heads / (query_heads / key_heads);
    const int64_t length = lengths[sequence];
    const int64_t* own_pages = pages + sequence * pages_of_sequence;

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
        const int64_t page = own_pages[place / page_size];
        const int64_t row = ((page * page_size + place % page_size) * key_heads + key_head) * features;
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
            const float part = expf(largest_of[each] - most);  // 0 for a warp without keys
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

torch::Tensor paged_decode(
    const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value, const torch::Tensor& pages,
    const torch::Tensor& lengths) {
    check(query, at::kBFloat16, "query");
    check(key, at::kBFloat16, "key");
    check(value, at::kBFloat16, "value");
    check(pages, at::kLong, "pages");
    check(lengths, at::kLong, "lengths");
    TORCH_CHECK(query.dim() == 3 && key.dim() == 4 && value.sizes() == key.sizes(), "query: (batch, heads, features)");
    const int64_t heads = query.size(0) * query.size(1);
    const int64_t features = query.size(2);
    TORCH_CHECK(key.size(3) == features, "key: (pages, page size, heads, features)");
    TORCH_CHECK(key.size(2) > 0 && query.size(1) % key.size(2) == 0, "query heads: a multiple of key heads");
    TORCH_CHECK(features <= most_features && heads <= INT_MAX, "at most 256 features");
    TORCH_CHECK(
        pages.dim() == 2 && pages.size(0) == query.size(0) && lengths.numel() == query.size(0),
        "pages and lengths: one row for each sequence");
    auto out = torch::empty_like(query);
    if (query.numel() > 0) {
        paged_decode_kernel<<<static_cast<unsigned>(heads), warps * 32, 0, at::cuda::getCurrentCUDAStream()>>>(
            static_cast<const at::BFloat16*>(query.data_ptr()), static_cast<const at::BFloat16*>(key.data_ptr()),
            static_cast<const at::BFloat16*>(value.data_ptr()), pages.data_ptr<int64_t>(), lengths.data_ptr<int64_t>(),
            static_cast<at::BFloat16*>(out.data_ptr()), query.size(1), key.size(2), key.size(1), pages.size(1),
            static_cast<int>(features), 1.0f / sqrtf(static_cast<float>(features)));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
    return out;
}
"""

extension = load_inline(
    name="paged_decode_online",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["paged_decode"],
)


class ModelNew(nn.Module):
    def forward(self, query, key, value, pages, lengths):
        return extension.paged_decode(query, key, value, pages, lengths)
