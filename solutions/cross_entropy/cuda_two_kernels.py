"""Cross entropy in two kernels: a loss for each row (one block a row), then their mean, added up in a fixed order."""

from torch import nn
from torch.utils.cpp_extension import load_inline

cpp_source = "torch::Tensor cross_entropy_mean(torch::Tensor logits, torch::Tensor targets);"

cuda_source = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <math_constants.h>

constexpr int kThreads = 256;  // a power of two: the trees below halve it

// Both reductions leave the result in every thread, and `scratch` free to be used again.
__device__ float block_max(float value, float* scratch) {
    scratch[threadIdx.x] = value;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) scratch[threadIdx.x] = fmaxf(scratch[threadIdx.x], scratch[threadIdx.x + half]);
        __syncthreads();
    }
    const float result = scratch[0];
    __syncthreads();
    return result;
}

__device__ float block_sum(float value, float* scratch) {
    scratch[threadIdx.x] = value;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) scratch[threadIdx.x] += scratch[threadIdx.x + half];
        __syncthreads();
    }
    const float result = scratch[0];
    __syncthreads();
    return result;
}

__global__ void row_losses_kernel(
    const float* __restrict__ logits, const int64_t* __restrict__ targets, float* __restrict__ losses,
    int64_t classes) {
    __shared__ float scratch[kThreads];
    const float* row = logits + blockIdx.x * classes;

    float largest = -CUDART_INF_F;
    for (int64_t i = threadIdx.x; i < classes; i += kThreads) largest = fmaxf(largest, row[i]);
    largest = block_max(largest, scratch);

    // Shifted by the maximum, no exponential overflows and one of them is 1.
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < classes; i += kThreads) sum += expf(row[i] - largest);
    sum = block_sum(sum, scratch);

    if (threadIdx.x == 0) {
        const int64_t target = targets[blockIdx.x];
        const bool known = target >= 0 && target < classes;
        losses[blockIdx.x] = known ? logf(sum) + (largest - row[target]) : CUDART_NAN_F;
    }
}

// A single block: the order of the additions, and so the result, is the same every time.
__global__ void mean_kernel(const float* __restrict__ losses, float* __restrict__ mean, int64_t rows) {
    __shared__ float scratch[kThreads];
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < rows; i += kThreads) sum += losses[i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) *mean = sum / static_cast<float>(rows);
}

torch::Tensor cross_entropy_mean(torch::Tensor logits, torch::Tensor targets) {
    TORCH_CHECK(logits.is_cuda() && logits.scalar_type() == torch::kFloat32, "logits must be a float32 CUDA tensor");
    TORCH_CHECK(targets.device() == logits.device() && targets.scalar_type() == torch::kInt64,
                "targets must be int64, on the device of the logits");
    TORCH_CHECK(logits.dim() == 2 && targets.dim() == 1 && targets.size(0) == logits.size(0),
                "logits must be (rows, classes) and targets (rows)");
    const at::cuda::CUDAGuard device_guard(logits.device());
    const auto scores = logits.contiguous();
    const auto indices = targets.contiguous();
    const int64_t rows = scores.size(0);
    TORCH_CHECK(rows > 0 && rows <= INT32_MAX, "the number of rows must fit into one grid");
    auto losses = torch::empty({rows}, scores.options());
    auto mean = torch::empty({}, scores.options());

    const auto stream = at::cuda::getCurrentCUDAStream();
    const auto blocks = static_cast<unsigned>(rows);
    row_losses_kernel<<<blocks, kThreads, 0, stream>>>(
        scores.data_ptr<float>(), indices.data_ptr<int64_t>(), losses.data_ptr<float>(), scores.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    mean_kernel<<<1, kThreads, 0, stream>>>(losses.data_ptr<float>(), mean.data_ptr<float>(), rows);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return mean;
}
"""

extension = load_inline(
    name="cross_entropy_cuda_two_kernels",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["cross_entropy_mean"],
)


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        return extension.cross_entropy_mean(logits, targets)
