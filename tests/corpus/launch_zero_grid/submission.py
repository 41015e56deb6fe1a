"""ReLU whose grid is rounded down to nothing; no code checks whether the kernel ran."""

from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor relu_forward(const torch::Tensor& x);"

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void relu_kernel(const float* __restrict__ x, float* __restrict__ out, int64_t dim, int64_t chunk) {
    const int64_t start = blockIdx.y * dim;
    const int64_t last = min((blockIdx.x + 1) * chunk, dim);
    for (int64_t i = blockIdx.x * chunk + threadIdx.x; i < last; i += blockDim.x) {
        out[start + i] = fmaxf(x[start + i], 0.0f);
    }
}

torch::Tensor relu_forward(const torch::Tensor& x) {
    auto out = torch::empty_like(x);
    const int64_t rows = x.size(0);
    const int64_t dim = x.size(1);
    const int64_t chunk = 8192;
    const dim3 grid(dim / chunk, rows);
    relu_kernel<<<grid, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), dim, chunk);
    return out;
}
"""

extension = load_inline(
    name="corpus_launch_zero_grid",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["relu_forward"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu_forward(x)
