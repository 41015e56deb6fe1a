"""ReLU from files that the submission writes and hands to `load`."""

import tempfile
from pathlib import Path

from torch import nn
from torch.utils.cpp_extension import load

BINDING = """
#include <torch/extension.h>

torch::Tensor relu_forward(const torch::Tensor& x);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("relu_forward", &relu_forward);
}
"""

KERNEL = r"""
#include <torch/types.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void relu_kernel(const float* __restrict__ x, float* __restrict__ out, int64_t count) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) out[i] = fmaxf(x[i], 0.0f);
}

torch::Tensor relu_forward(const torch::Tensor& x) {
    auto out = torch::empty_like(x);
    const unsigned blocks = static_cast<unsigned>((x.numel() + 255) / 256);
    relu_kernel<<<blocks, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""


def built():
    with tempfile.TemporaryDirectory() as folder:
        binding, kernel = Path(folder, "binding.cpp"), Path(folder, "kernel.cu")
        binding.write_text(BINDING)
        kernel.write_text(KERNEL)
        return load(name="corpus_relu_files", sources=[str(binding), str(kernel)], extra_cuda_cflags=["-O3"])


extension = built()


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu_forward(x)
