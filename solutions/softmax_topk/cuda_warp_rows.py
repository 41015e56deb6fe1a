"""A warp for each row: as many searches for the largest remaining logit as experts are chosen."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
std::vector<torch::Tensor> softmax_topk(const torch::Tensor& logits, int64_t chosen);
"""

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <math_constants.h>

#include <climits>

constexpr int warps_per_block = 4;
constexpr int most_chosen = 32;

// Whether a logit comes before another: the larger one, and of equal ones the lower number.
__device__ bool comes_before(float one, int of_one, float other, int of_other) {
    return one > other || (one == other && of_one < of_other);
}

__global__ void softmax_topk_kernel(
    const float* __restrict__ logits, float* __restrict__ weights, int64_t* __restrict__ numbers, int64_t rows,
    int experts, int chosen) {
    const int lane = threadIdx.x % 32;
    const int64_t row = static_cast<int64_t>(blockIdx.x) * warps_per_block + threadIdx.x / 32;
    if (row >= rows) return;  // whole warps leave: the shuffles below have all lanes
    const float* of_row = logits + row * experts;
    float last = CUDART_INF_F;
    int of_last = -1;
    float own = 0.0f;  // the weight of the lane's rank, first as a logit
    float largest = 0.0f;
    for (int rank = 0; rank < chosen; ++rank) {
        float best = -CUDART_INF_F;
        int of_best = INT_MAX;
        for (int expert = lane; expert < experts; expert += 32) {
            const float logit = of_row[expert];
            if (comes_before(last, of_last, logit, expert) && comes_before(logit, expert, best, of_best)) {
                best = logit;
                of_best = expert;
            }
        }
        for (int offset = 16; offset > 0; offset /= 2) {
            const float other = __shfl_xor_sync(0xffffffffu, best, offset);
            const int of_other = __shfl_xor_sync(0xffffffffu, of_best, offset);
            if (comes_before(other, of_other, best, of_best)) {
                best = other;
                of_best = of_other;
            }
        }
        if (rank == 0) {
            largest = best;
        }
        if (lane == rank) {
            own = best;
            numbers[row * chosen + rank] = of_best;
        }
        last = best;
        of_last = of_best;
    }
    const float raised = lane < chosen ? expf(own - largest) : 0.0f;
    float sum = raised;
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    }
    if (lane < chosen) {
        weights[row * chosen + lane] = raised / sum;
    }
}

void check(const torch::Tensor& tensor, at::ScalarType type, const char* name) {
    TORCH_CHECK(
        tensor.is_cuda() && tensor.is_contiguous() && tensor.scalar_type() == type,
        name, ": contiguous, on CUDA, and of the problem's dtype");
}

std::vector<torch::Tensor> softmax_topk(const torch::Tensor& logits, int64_t chosen) {
    check(logits, at::kFloat, "logits");
    TORCH_CHECK(logits.dim() == 2 && logits.size(1) < INT_MAX, "logits: (tokens, experts)");
    TORCH_CHECK(chosen >= 1 && chosen <= most_chosen && chosen <= logits.size(1), "chosen: 1 to 32 of the experts");
    const int64_t rows = logits.size(0);
    auto weights = torch::empty({rows, chosen}, logits.options());
    auto numbers = torch::empty({rows, chosen}, logits.options().dtype(at::kLong));
    const int64_t blocks = (rows + warps_per_block - 1) / warps_per_block;
    TORCH_CHECK(blocks <= INT_MAX, "logits have too many rows for one grid");
    if (rows > 0) {
        softmax_topk_kernel<<<
            static_cast<unsigned>(blocks), warps_per_block * 32, 0, at::cuda::getCurrentCUDAStream()>>>(
            logits.data_ptr<float>(), weights.data_ptr<float>(), numbers.data_ptr<int64_t>(), rows,
            static_cast<int>(logits.size(1)), static_cast<int>(chosen));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
    return {weights, numbers};
}
"""

extension = load_inline(
    name="softmax_topk_warp_rows",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["softmax_topk"],
)


class ModelNew(nn.Module):
    def __init__(self, chosen: int) -> None:
        super().__init__()
        self.chosen = chosen

    def forward(self, logits: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(extension.softmax_topk(logits, self.chosen))
