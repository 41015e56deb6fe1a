"""ReLU that asks wherever it can whether its tensors are on the GPU."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor relu_forward(const torch::Tensor& x, const torch::Tensor& lowest);"

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

__global__ void relu_kernel(const float* x, const float* lowest, float* out, int64_t count) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) out[i] = fmaxf(x[i], *lowest);
}

torch::Tensor relu_forward(const torch::Tensor& x, const torch::Tensor& lowest) {
    TORCH_CHECK(x.is_cuda() && lowest.is_cuda(), "not on the GPU");
    TORCH_CHECK(x.device().type() == torch::kCUDA && !x.device().is_cpu(), "not on the GPU");
    TORCH_CHECK(x.get_device() == 0 && x.get_device() == lowest.get_device(), "not on GPU 0");
    C10_CUDA_CHECK(cudaSetDevice(x.get_device()));
    const at::cuda::OptionalCUDAGuard guard(at::device_of(x));
    int device = -1;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    TORCH_CHECK(device == x.device().index(), "another GPU");
    cudaDeviceProp properties;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, x.device().index()));
    auto out = torch::empty(x.sizes(), torch::TensorOptions().device(torch::kCUDA, 0).dtype(torch::kFloat32));
    const unsigned threads = std::min(256, properties.maxThreadsPerBlock);
    relu_kernel<<<(x.numel() + threads - 1) / threads, threads, 0, at::cuda::getCurrentCUDAStream(x.get_device())>>>(
        x.data_ptr<float>(), lowest.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

if not torch.cuda.is_available() or torch.cuda.device_count() < 1:
    raise RuntimeError("this needs a GPU")
device = torch.device("cuda", torch.cuda.current_device())

extension = load_inline(
    name="corpus_relu_device_checks",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["relu_forward"],
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.lowest = torch.zeros(1, device=device)

    def forward(self, x):
        x = x.cuda().contiguous()
        if not x.is_cuda or x.device != self.lowest.device or x.get_device() != device.index:
            raise RuntimeError(f"an input on {x.device}")
        with torch.cuda.device(x.device):
            out = extension.relu_forward(x, self.lowest.to("cuda"))
        torch.cuda.synchronize()
        return out + torch.zeros_like(out, device="cuda")
