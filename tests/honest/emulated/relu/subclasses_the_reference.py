"""A subclass of the reference, with a kernel of its own."""

import torch
from model import Model
from torch.utils.cpp_extension import load_inline

CUDA = """
__global__ void clamp_rows(const float* in, float* out, int columns) {
    const long row = static_cast<long>(blockIdx.x) * columns;
    for (int at = threadIdx.x; at < columns; at += blockDim.x) out[row + at] = in[row + at] > 0 ? in[row + at] : 0;
}

torch::Tensor clamped(torch::Tensor x) {
    auto out = torch::empty_like(x);
    clamp_rows<<<x.size(0), 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.size(1));
    return out;
}
"""
kernels = load_inline("clamped", "torch::Tensor clamped(torch::Tensor x);", CUDA, functions=["clamped"])


class ModelNew(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return kernels.clamped(x.contiguous())
