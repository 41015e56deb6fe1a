"""Linear, ReLU, divide by CUTLASS 2.x: `device::Gemm` on tensor cores.

Three TF32 products replace a float32 product. The epilogue adds the bias, applies ReLU and divides. The bias is the
addend C with a stride of zero between rows.
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <cutlass/epilogue/thread/linear_combination_relu.h>
#include <cutlass/gemm/device/gemm.h>

using RowMajor = cutlass::layout::RowMajor;
using ColumnMajor = cutlass::layout::ColumnMajor;

template <int kAlignment>
using Gemm = cutlass::gemm::device::Gemm<
    float, RowMajor, float, ColumnMajor, float, RowMajor, float, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80,
    cutlass::gemm::GemmShape<128, 64, 16>, cutlass::gemm::GemmShape<64, 32, 16>, cutlass::gemm::GemmShape<16, 8, 8>,
    cutlass::epilogue::thread::LinearCombinationRelu<float, kAlignment, float, float>,
    cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>, 3, kAlignment, kAlignment, false,
    cutlass::arch::OpMultiplyAddFastF32>;

template <int kAlignment>
cutlass::Status run(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, torch::Tensor& out,
                    float factor, cudaStream_t stream) {
    using Kernel = Gemm<kAlignment>;
    const int rows = x.size(0), inner = x.size(1), columns = weight.size(0);
    typename Kernel::Arguments arguments(
        {rows, columns, inner}, {x.data_ptr<float>(), inner}, {weight.data_ptr<float>(), inner},
        {bias.data_ptr<float>(), 0}, {out.data_ptr<float>(), columns}, {factor, factor});
    Kernel gemm;
    return gemm(arguments, nullptr, stream);
}

torch::Tensor linear_relu_divide(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double divisor) {
    auto out = torch::empty({x.size(0), weight.size(0)}, x.options());
    const bool aligned = x.size(1) % 4 == 0 && weight.size(0) % 4 == 0;
    const auto stream = at::cuda::getCurrentCUDAStream();
    const auto status = aligned ? run<4>(x, weight, bias, out, 1.0 / divisor, stream)
                                : run<1>(x, weight, bias, out, 1.0 / divisor, stream);
    TORCH_CHECK(status == cutlass::Status::kSuccess, cutlass::cutlassGetStatusString(status));
    return out;
}
"""

extension = load_inline(
    name="tensor_op_gemm",
    cpp_sources=(
        "torch::Tensor linear_relu_divide(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double divisor);"
    ),
    cuda_sources=CUDA_SOURCE,
    functions=["linear_relu_divide"],
    extra_cuda_cflags=["-O3", "--expt-relaxed-constexpr"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    def forward(self, x):
        return extension.linear_relu_divide(x.contiguous(), self.linear.weight, self.linear.bias, self.divisor)
