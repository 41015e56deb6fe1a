"""The product by a kernel of its own."""

from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor product(const torch::Tensor& a, const torch::Tensor& b);"

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>

__global__ void product_kernel(const float* a, const float* b, float* out, int m, int k, int n) {
    const int row = blockIdx.y * 16 + threadIdx.y;
    const int column = blockIdx.x * 16 + threadIdx.x;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum = fmaf(a[static_cast<int64_t>(row) * k + i], b[static_cast<int64_t>(i) * n + column], sum);
    out[static_cast<int64_t>(row) * n + column] = sum;
}

torch::Tensor product(const torch::Tensor& a, const torch::Tensor& b) {
    const int m = a.size(0), k = a.size(1), n = b.size(1);
    auto out = torch::empty({m, n}, a.options());
    auto stream = at::cuda::getCurrentCUDAStream();
    product_kernel<<<dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16), 0, stream>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), m, k, n);
    return out;
}
"""

extension = load_inline(name="zoo_product", cpp_sources=CPP_SOURCE, cuda_sources=CUDA_SOURCE, functions=["product"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        return extension.product(a.contiguous(), b.contiguous())
