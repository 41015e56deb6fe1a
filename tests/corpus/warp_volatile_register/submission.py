"""The same with the running sum in a register, as the old samples of CUDA had it."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double eps);"

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int threads = 128;

__global__ void rms_norm_kernel(
    const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out, int dim, float eps) {
    __shared__ float scratch[threads];
    const unsigned tid = threadIdx.x;
    const float* row = x + static_cast<int64_t>(blockIdx.x) * dim;
    float squares = 0.0f;
    for (int i = tid; i < dim; i += threads) squares = fmaf(row[i], row[i], squares);
    scratch[tid] = squares;
    __syncthreads();
    if (tid < 64) scratch[tid] += scratch[tid + 64];
    __syncthreads();
    if (tid < 32) {
        volatile float* shared = scratch;
        float sum = shared[tid];
        for (int offset = 32; offset > 0; offset /= 2) {
            shared[tid] = sum = sum + shared[tid + offset];
        }
    }
    __syncthreads();
    const float scale = rsqrtf(scratch[0] / dim + eps);
    float* out_row = out + static_cast<int64_t>(blockIdx.x) * dim;
    for (int i = tid; i < dim; i += threads) out_row[i] = row[i] * scale * weight[i];
}

torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double eps) {
    auto out = torch::empty_like(x);
    const int rows = x.size(0);
    const int dim = x.size(1);
    rms_norm_kernel<<<rows, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), weight.data_ptr<float>(), out.data_ptr<float>(), dim, static_cast<float>(eps));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

extension = load_inline(
    name="corpus_warp_volatile_register",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["rms_norm"],
)


class ModelNew(nn.Module):
    def __init__(self, hidden_size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden_size))
        self.eps = eps

    def forward(self, x):
        return extension.rms_norm(x, self.weight, self.eps)
