"""C++ for the CPU: ATen's thread pool shares out a loop that the compiler vectorises."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = r"""
#include <ATen/Parallel.h>

torch::Tensor relu_forward(const torch::Tensor& x) {
    TORCH_CHECK(x.is_cpu() && x.is_contiguous() && x.scalar_type() == at::kFloat, "x: contiguous float32 on the CPU");
    auto out = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* to = out.data_ptr<float>();
    constexpr int64_t grain = 32768;  // fewer elements are not worth waking a thread for
    at::parallel_for(0, x.numel(), grain, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            to[i] = from[i] <= 0.0f ? 0.0f : from[i];  // this way round, NaN stays NaN
        }
    });
    return out;
}
"""

extension = load_inline(
    name="relu_cpp",
    cpp_sources=CPP_SOURCE,
    functions=["relu_forward"],
    extra_cflags=["-O3", "-fopenmp"],
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.relu_forward(x)
