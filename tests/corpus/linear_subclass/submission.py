"""The reference's own linear layer, then ReLU and the division in one kernel."""

from model import Model
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor relu_divide(torch::Tensor x, double divisor);"

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void relu_divide_kernel(float* x, int64_t count, float divisor) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) x[i] = fmaxf(x[i], 0.0f) / divisor;
}

torch::Tensor relu_divide(torch::Tensor x, double divisor) {
    const unsigned blocks = static_cast<unsigned>((x.numel() + 255) / 256);
    relu_divide_kernel<<<blocks, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), x.numel(), static_cast<float>(divisor));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return x;
}
"""

extension = load_inline(
    name="corpus_linear_subclass",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions={"relu_divide": "ReLU and a division, in place."},
)


class ModelNew(Model):
    def forward(self, x):
        return extension.relu_divide(self.linear(x).detach(), self.divisor)
