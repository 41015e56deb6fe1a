"""A block for each token rotates its queries and keys, and writes its slot of both caches."""

from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
std::vector<torch::Tensor> rope_kv_write(
    const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value, const torch::Tensor& cosine,
    const torch::Tensor& sine, const torch::Tensor& position, const torch::Tensor& slot, int64_t slots);
"""

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <climits>

constexpr int threads = 128;

// One half of a head lies `half` behind the other. `count` is the number of pairs of all heads.
__device__ void rotate(
    const at::BFloat16* from, at::BFloat16* to, const float* cosine, const float* sine, int64_t count, int64_t half) {
    for (int64_t i = threadIdx.x; i < count; i += threads) {
        const int64_t pair = i % half;
        const int64_t at = i / half * 2 * half + pair;
        const float one = static_cast<float>(from[at]);
        const float other = static_cast<float>(from[at + half]);
        to[at] = static_cast<at::BFloat16>(one * cosine[pair] - other * sine[pair]);
        to[at + half] = static_cast<at::BFloat16>(other * cosine[pair] + one * sine[pair]);
    }
}

__global__ void rope_kv_write_kernel(
    const at::BFloat16* __restrict__ query, const at::BFloat16* __restrict__ key,
    const at::BFloat16* __restrict__ value, const float* __restrict__ cosine, const float* __restrict__ sine,
    const int64_t* __restrict__ position, const int64_t* __restrict__ slot, at::BFloat16* __restrict__ out,
    at::BFloat16* __restrict__ keys, at::BFloat16* __restrict__ values, int64_t query_width, int64_t key_width,
    int64_t half, int64_t positions, int64_t slots) {
    const int64_t token = blockIdx.x;
    const int64_t place = position[token];
    const int64_t to = slot[token];
    if (place < 0 || place >= positions || to < 0 || to >= slots) return;
    rotate(query + token * query_width, out + token * query_width, cosine + place * half, sine + place * half,
           query_width / 2, half);
    rotate(key + token * key_width, keys + to * key_width, cosine + place * half, sine + place * half,
           key_width / 2, half);
    for (int64_t i = threadIdx.x; i < key_width; i += threads) {
        values[to * key_width + i] = value[token * key_width + i];
    }
}

void check(const torch::Tensor& tensor, at::ScalarType type, const char* name) {
    TORCH_CHECK(
        tensor.is_cuda() && tensor.is_contiguous() && tensor.scalar_type() == type,
        name, ": contiguous, on CUDA, and of the problem's dtype");
}

std::vector<torch::Tensor> rope_kv_write(
    const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value, const torch::Tensor& cosine,
    const torch::Tensor& sine, const torch::Tensor& position, const torch::Tensor& slot, int64_t slots) {
    check(query, at::kBFloat16, "query");
    check(key, at::kBFloat16, "key");
    check(value, at::kBFloat16, "value");
    check(cosine, at::kFloat, "cosine");
    check(sine, at::kFloat, "sine");
    check(position, at::kLong, "position");
    check(slot, at::kLong, "slot");
    TORCH_CHECK(query.dim() == 3 && key.dim() == 3 && value.sizes() == key.sizes(), "all: (tokens, heads, features)");
    const int64_t tokens = query.size(0);
    const int64_t features = query.size(2);
    TORCH_CHECK(key.size(0) == tokens && key.size(2) == features && features % 2 == 0, "query and key differ");
    TORCH_CHECK(cosine.dim() == 2 && cosine.size(1) == features / 2 && sine.sizes() == cosine.sizes(), "tables differ");
    TORCH_CHECK(position.numel() == tokens && slot.numel() == tokens, "position and slot: one for each token");
    TORCH_CHECK(tokens <= INT_MAX, "too many tokens for one grid");
    auto out = torch::empty_like(query);
    auto keys = torch::zeros({slots, key.size(1), features}, key.options());
    auto values = torch::zeros({slots, key.size(1), features}, key.options());
    if (query.numel() > 0) {
        rope_kv_write_kernel<<<static_cast<unsigned>(tokens), threads, 0, at::cuda::getCurrentCUDAStream()>>>(
            static_cast<const at::BFloat16*>(query.data_ptr()), static_cast<const at::BFloat16*>(key.data_ptr()),
            static_cast<const at::BFloat16*>(value.data_ptr()), cosine.data_ptr<float>(), sine.data_ptr<float>(),
            position.data_ptr<int64_t>(), slot.data_ptr<int64_t>(), static_cast<at::BFloat16*>(out.data_ptr()),
            static_cast<at::BFloat16*>(keys.data_ptr()), static_cast<at::BFloat16*>(values.data_ptr()),
            query.size(1) * features, key.size(1) * features, features / 2, cosine.size(0), slots);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
    return {out, keys, values};
}
"""

extension = load_inline(
    name="rope_kv_write_block_per_token",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["rope_kv_write"],
)


class ModelNew(nn.Module):
    def __init__(self, slots: int) -> None:
        super().__init__()
        self.slots = slots

    def forward(self, query, key, value, cosine, sine, position, slot):
        return tuple(extension.rope_kv_write(query, key, value, cosine, sine, position, slot, self.slots))
