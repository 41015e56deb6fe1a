"""Softmax in C++ for the CPU: three loops over a row that stays in cache, rows shared out among threads."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = r"""
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

void softmax_row(const float* row, float* out, int64_t dim) {
    const float maximum = *std::max_element(row, row + dim);
    double sum = 0.0;
    for (int64_t i = 0; i < dim; ++i) {
        out[i] = std::exp(row[i] - maximum);
        sum += out[i];
    }
    const float scale = static_cast<float>(1.0 / sum);
    for (int64_t i = 0; i < dim; ++i) {
        out[i] *= scale;
    }
}

torch::Tensor softmax_forward(const torch::Tensor& x) {
    TORCH_CHECK(x.is_cpu() && x.is_contiguous() && x.scalar_type() == at::kFloat, "x: contiguous float32 on the CPU");
    TORCH_CHECK(x.dim() >= 1, "x: at least one dimension");
    auto out = torch::empty_like(x);
    if (x.numel() == 0) {
        return out;
    }
    const int64_t dim = x.size(-1);
    const float* from = x.data_ptr<float>();
    float* to = out.data_ptr<float>();
    at::parallel_for(0, x.numel() / dim, 1, [=](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            softmax_row(from + row * dim, to + row * dim, dim);
        }
    });
    return out;
}
"""

extension = load_inline(
    name="softmax_cpp",
    cpp_sources=CPP_SOURCE,
    functions=["softmax_forward"],
    extra_cflags=["-O3", "-fopenmp"],
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.softmax_forward(x)
