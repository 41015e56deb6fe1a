"""LayerNorm in C++ for the CPU: sums in double, rows shared out among threads."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = r"""
#include <ATen/Parallel.h>

#include <cmath>

void check(const torch::Tensor& tensor, const char* name) {
    TORCH_CHECK(
        tensor.is_cpu() && tensor.is_contiguous() && tensor.scalar_type() == at::kFloat,
        name, ": contiguous float32 on the CPU");
}

void normalise_row(
    const float* row, const float* weight, const float* bias, float* out, int64_t dim, double eps) {
    double sum = 0.0;
    for (int64_t i = 0; i < dim; ++i) {
        sum += row[i];
    }
    const double mean = sum / static_cast<double>(dim);
    double squares = 0.0;
    for (int64_t i = 0; i < dim; ++i) {
        const double difference = row[i] - mean;
        squares += difference * difference;
    }
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(dim) + eps);
    for (int64_t i = 0; i < dim; ++i) {
        out[i] = static_cast<float>((row[i] - mean) * scale) * weight[i] + bias[i];
    }
}

torch::Tensor layer_norm_forward(
    const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, double eps) {
    check(x, "x");
    check(weight, "weight");
    check(bias, "bias");
    const int64_t dim = weight.numel();
    TORCH_CHECK(x.dim() >= 1 && x.size(-1) == dim && bias.numel() == dim, "weight and bias: one value for each column");
    auto out = torch::empty_like(x);
    if (x.numel() == 0) {
        return out;
    }
    const float* from = x.data_ptr<float>();
    const float* scales = weight.data_ptr<float>();
    const float* shifts = bias.data_ptr<float>();
    float* to = out.data_ptr<float>();
    at::parallel_for(0, x.numel() / dim, 1, [=](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            normalise_row(from + row * dim, scales, shifts, to + row * dim, dim, eps);
        }
    });
    return out;
}
"""

extension = load_inline(
    name="layer_norm_cpp",
    cpp_sources=CPP_SOURCE,
    functions=["layer_norm_forward"],
    extra_cflags=["-O3", "-fopenmp"],
)


class ModelNew(nn.Module):
    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden_size))
        self.bias = nn.Parameter(torch.randn(hidden_size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.layer_norm_forward(x, self.weight, self.bias, self.eps)
