"""The same kernel, with the cache as it is."""

from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor add_forward(const torch::Tensor& x, const torch::Tensor& y);"

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

// The number of elements is a multiple of four at every size but the awkward one, whose rest is added one by one.
__global__ void add_kernel(const float* x, const float* y, float* out, int64_t count) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count / 4) {
        const float4 a = reinterpret_cast<const float4*>(x)[i];
        const float4 b = reinterpret_cast<const float4*>(y)[i];
        reinterpret_cast<float4*>(out)[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
    } else if (const int64_t rest = count / 4 * 3 + i; rest < count) {
        out[rest] = x[rest] + y[rest];
    }
}

torch::Tensor add_forward(const torch::Tensor& x, const torch::Tensor& y) {
    auto out = torch::empty_like(x);
    const int64_t count = x.numel();
    const auto stream = at::cuda::getCurrentCUDAStream();
    const int64_t threads = count / 4 + count % 4;
    add_kernel<<<(threads + 255) / 256, 256, 0, stream>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), count);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

extension = load_inline(
    name="zoo_plain",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["add_forward"],
)


class ModelNew(nn.Module):
    def forward(self, x, y):
        return extension.add_forward(x, y)
