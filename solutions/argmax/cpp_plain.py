"""Argmax in C++ for the CPU: one scan of each row that stops at the first NaN, rows shared out among threads."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = r"""
#include <ATen/Parallel.h>

#include <cmath>

// NaN is above every number; of equals the first one counts, as it does for torch.argmax.
int64_t argmax_row(const float* row, int64_t dim) {
    int64_t best = 0;
    for (int64_t i = 0; i < dim; ++i) {
        if (std::isnan(row[i])) {
            return i;
        }
        if (row[i] > row[best]) {
            best = i;
        }
    }
    return best;
}

torch::Tensor argmax_forward(const torch::Tensor& x) {
    TORCH_CHECK(x.is_cpu() && x.is_contiguous() && x.scalar_type() == at::kFloat, "x: contiguous float32 on the CPU");
    TORCH_CHECK(x.dim() >= 1 && x.size(-1) > 0, "x: rows of at least one element");
    const int64_t dim = x.size(-1);
    auto out = torch::empty(x.sizes().slice(0, x.dim() - 1), x.options().dtype(at::kLong));
    const float* from = x.data_ptr<float>();
    int64_t* to = out.data_ptr<int64_t>();
    at::parallel_for(0, out.numel(), 1, [=](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            to[row] = argmax_row(from + row * dim, dim);
        }
    });
    return out;
}
"""

extension = load_inline(
    name="argmax_cpp",
    cpp_sources=CPP_SOURCE,
    functions=["argmax_forward"],
    extra_cflags=["-O3", "-fopenmp"],
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.argmax_forward(x)
