"""ReLU as an operator of `torch.ops`, in a library that is no module of Python's."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = r"""
#include <torch/library.h>

torch::Tensor relu_forward(const torch::Tensor& x) {
    auto out = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* to = out.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) to[i] = from[i] < 0.0f ? 0.0f : from[i];
    return out;
}

TORCH_LIBRARY(honest_relu, library) {
    library.def("forward(Tensor x) -> Tensor", &relu_forward);
}
"""

load_inline(name="honest_relu", cpp_sources=CPP_SOURCE, is_python_module=False)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.ops.honest_relu.forward(x)
