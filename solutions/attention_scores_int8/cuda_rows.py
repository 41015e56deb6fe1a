"""Attention scores in int8: a block for each query computes its row of scores with __dp4a, then the softmax."""

from torch import nn
from torch.utils.cpp_extension import load_inline

cpp_source = """
torch::Tensor scores_int8(torch::Tensor q, torch::Tensor q_scale, torch::Tensor k, torch::Tensor k_scale);
"""

cuda_source = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

struct Sum {
    __device__ static float of(float one, float other) { return one + other; }
};

struct Most {
    __device__ static float of(float one, float other) { return fmaxf(one, other); }
};

// The reduction over all threads of the block, returned to each of them.
template <class Operation>
__device__ float block_reduce(float value) {
    __shared__ float of_warp[kWarps];
    for (int offset = 16; offset > 0; offset /= 2) {
        value = Operation::of(value, __shfl_xor_sync(0xffffffffu, value, offset));
    }
    __syncthreads();  // all have read the result of an earlier reduction
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    float total = of_warp[0];
    for (int warp = 1; warp < kWarps; ++warp) total = Operation::of(total, of_warp[warp]);
    return total;
}

// Four products of int8 in one instruction. `quads` is the head size in words of four.
__global__ void scores_int8_kernel(
    const int* __restrict__ q, const float* __restrict__ q_scale, const int* __restrict__ k,
    const float* __restrict__ k_scale, float* __restrict__ out, int64_t tokens, int quads, float factor) {
    const int64_t query = blockIdx.x;
    const int64_t head = query / tokens;
    const int* own = q + query * quads;
    float* row = out + query * tokens;
    const float scale = q_scale[query] * factor;

    float most = -INFINITY;
    for (int64_t key = threadIdx.x; key < tokens; key += kThreads) {
        const int* other = k + (head * tokens + key) * quads;
        int sum = 0;
        for (int i = 0; i < quads; ++i) sum = __dp4a(own[i], other[i], sum);
        const float score = static_cast<float>(sum) * scale * k_scale[head * tokens + key];
        row[key] = score;
        most = fmaxf(most, score);
    }
    most = block_reduce<Most>(most);
    float sum = 0.0f;
    for (int64_t key = threadIdx.x; key < tokens; key += kThreads) {
        const float value = expf(row[key] - most);
        row[key] = value;
        sum += value;
    }
    sum = block_reduce<Sum>(sum);
    for (int64_t key = threadIdx.x; key < tokens; key += kThreads) row[key] /= sum;
}

void check_codes(const torch::Tensor& codes, const char* name) {
    TORCH_CHECK(codes.is_cuda() && codes.is_contiguous() && codes.dim() == 4, name, ": contiguous, 4 dimensions");
    TORCH_CHECK(codes.scalar_type() == torch::kInt8 && codes.size(3) % 4 == 0, name, ": int8, heads of 4n values");
    TORCH_CHECK(reinterpret_cast<uintptr_t>(codes.data_ptr()) % sizeof(int) == 0, name, ": aligned to 4 bytes");
}

torch::Tensor scores_int8(torch::Tensor q, torch::Tensor q_scale, torch::Tensor k, torch::Tensor k_scale) {
    check_codes(q, "q");
    check_codes(k, "k");
    TORCH_CHECK(q.sizes() == k.sizes(), "q and k have the same shape");
    const at::cuda::CUDAGuard device_guard(q.device());
    const int64_t tokens = q.size(2);
    auto out = torch::empty({q.size(0), q.size(1), tokens, tokens}, q_scale.options());
    if (out.numel() == 0) return out;
    const int64_t queries = q.size(0) * q.size(1) * tokens;
    TORCH_CHECK(queries <= INT32_MAX, "too many queries for one grid");
    const float factor = 1.0f / sqrtf(static_cast<float>(q.size(3)));
    scores_int8_kernel<<<static_cast<unsigned>(queries), kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
        static_cast<const int*>(q.data_ptr()), q_scale.data_ptr<float>(), static_cast<const int*>(k.data_ptr()),
        k_scale.data_ptr<float>(), out.data_ptr<float>(), tokens, static_cast<int>(q.size(3) / 4), factor);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

extension = load_inline(
    name="attention_scores_int8_rows",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["scores_int8"],
)


class ModelNew(nn.Module):
    def forward(self, q, q_scale, k, k_scale):
        return extension.scores_int8(*(each.contiguous() for each in (q, q_scale, k, k_scale)))
