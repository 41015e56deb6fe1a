#include <ATen/cuda/CUDAContext.h>
#include <torch/types.h>

#include "gemm.cuh"

torch::Tensor multiply(torch::Tensor a, torch::Tensor b) {
    const int rows = a.size(0), inner = a.size(1), columns = b.size(1);
    TORCH_CHECK(inner % kAlignment == 0 && columns % kAlignment == 0, "rows must be aligned to 16 bytes");
    auto out = torch::empty({rows, columns}, a.options());
    const auto* left = static_cast<const Element*>(a.data_ptr());
    const auto* right = static_cast<const Element*>(b.data_ptr());
    auto* c = static_cast<Element*>(out.data_ptr());
    const auto stride_a = cutlass::make_cute_packed_stride(Gemm::GemmKernel::StrideA{}, {rows, inner, 1});
    const auto stride_b = cutlass::make_cute_packed_stride(Gemm::GemmKernel::StrideB{}, {columns, inner, 1});
    const auto stride_d = cutlass::make_cute_packed_stride(Gemm::GemmKernel::StrideD{}, {rows, columns, 1});
    const Gemm::Arguments arguments{
        cutlass::gemm::GemmUniversalMode::kGemm,
        {rows, columns, inner, 1},
        {left, stride_a, right, stride_b},
        {{1.0f, 0.0f}, nullptr, {}, c, stride_d}};
    Gemm gemm;
    auto workspace = torch::empty({static_cast<int64_t>(Gemm::get_workspace_size(arguments))}, a.options().dtype(at::kByte));
    const auto status = gemm(arguments, workspace.data_ptr(), at::cuda::getCurrentCUDAStream());
    TORCH_CHECK(status == cutlass::Status::kSuccess, cutlass::cutlassGetStatusString(status));
    return out;
}
