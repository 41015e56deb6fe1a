"""A matrix product of halves by cublasGemmEx with sums in float."""

from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor matmul_forward(const torch::Tensor& a, const torch::Tensor& b);"

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <cublas_v2.h>

torch::Tensor matmul_forward(const torch::Tensor& a, const torch::Tensor& b) {
    const int rows = a.size(0);
    const int inner = a.size(1);
    const int columns = b.size(1);
    auto c = torch::empty({rows, columns}, a.options());
    const float alpha = 1.0f;
    const float beta = 0.0f;
    const cublasStatus_t status = cublasGemmEx(
        at::cuda::getCurrentCUDABlasHandle(), CUBLAS_OP_N, CUBLAS_OP_N, columns, rows, inner, &alpha, b.data_ptr(),
        CUDA_R_16F, columns, a.data_ptr(), CUDA_R_16F, inner, &beta, c.data_ptr(), CUDA_R_16F, columns,
        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS, "cublasGemmEx failed");
    return c;
}
"""

extension = load_inline(
    name="corpus_matmul_gemm_ex",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["matmul_forward"],
)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return extension.matmul_forward(a, b)
