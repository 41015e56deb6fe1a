"""A matrix product in half precision on tensor cores."""

from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor matmul_forward(const torch::Tensor& a, const torch::Tensor& b);"

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <cuda_fp16.h>
#include <mma.h>

__global__ void matmul_kernel(const __half* a, const __half* b, __half* c, int rows, int inner, int columns) {
    using namespace nvcuda;
    __shared__ float tile[16 * 16];
    const int row = blockIdx.y * 16;
    const int column = blockIdx.x * 16;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int k = 0; k < inner; k += 16) {
        wmma::load_matrix_sync(left, a + row * inner + k, inner);
        wmma::load_matrix_sync(right, b + k * columns + column, columns);
        wmma::mma_sync(sum, left, right, sum);
    }
    wmma::store_matrix_sync(tile, sum, 16, wmma::mem_row_major);
    __syncwarp();
    for (int i = threadIdx.x; i < 256; i += 32) {
        c[(row + i / 16) * columns + column + i % 16] = __float2half(tile[i]);
    }
}

torch::Tensor matmul_forward(const torch::Tensor& a, const torch::Tensor& b) {
    const int rows = a.size(0);
    const int inner = a.size(1);
    const int columns = b.size(1);
    TORCH_CHECK(columns % 2 == 0, "an even number of columns");
    auto c = torch::empty({rows, columns}, a.options());
    const dim3 grid((columns + 15) / 16, (rows + 15) / 16);
    const dim3 block(32);
    matmul_kernel<<<grid, block, 0, at::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const __half*>(a.data_ptr<at::Half>()),
        reinterpret_cast<const __half*>(b.data_ptr<at::Half>()),
        reinterpret_cast<__half*>(c.data_ptr<at::Half>()), rows, inner, columns);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return c;
}
"""

extension = load_inline(
    name="corpus_wmma",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["matmul_forward"],
)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return extension.matmul_forward(a, b)
