"""A maximum over shared memory of which half was never written: NaN there is passed over by fmaxf."""

from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor softmax_forward(const torch::Tensor& x);"

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <cmath>

constexpr int kThreads = 256;

__global__ void softmax_kernel(const float* x, float* out, int columns) {
    __shared__ float most[2 * kThreads];
    __shared__ float sums[kThreads];
    const float* row = x + static_cast<int64_t>(blockIdx.x) * columns;
    float* answer = out + static_cast<int64_t>(blockIdx.x) * columns;
    float largest = -INFINITY;
    for (int i = threadIdx.x; i < columns; i += kThreads) largest = fmaxf(largest, row[i]);
    most[threadIdx.x] = largest;
    __syncthreads();
    // One step too many: the upper half takes part.
    for (int half = kThreads; half > 0; half /= 2) {
        if (threadIdx.x < half) most[threadIdx.x] = fmaxf(most[threadIdx.x], most[threadIdx.x + half]);
        __syncthreads();
    }
    largest = most[0];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += kThreads) sum += expf(row[i] - largest);
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    for (int i = threadIdx.x; i < columns; i += kThreads) answer[i] = expf(row[i] - largest) / sums[0];
}

torch::Tensor softmax_forward(const torch::Tensor& x) {
    auto out = torch::empty_like(x);
    const int columns = static_cast<int>(x.size(1));
    softmax_kernel<<<x.size(0), kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), columns);
    return out;
}
"""

extension = load_inline(
    name="zoo_softmax",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["softmax_forward"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.softmax_forward(x.contiguous())
