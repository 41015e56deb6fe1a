"""A kernel that walks through the table of one call, and nothing else."""

from torch import nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor walk(const torch::Tensor& table, const torch::Tensor& start, int64_t steps);"

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void walk_kernel(const int64_t* table, const int64_t* start, int64_t* out, int64_t walkers, int64_t steps) {
    if (threadIdx.x < walkers) {
        int64_t place = start[threadIdx.x];
        for (int64_t step = 0; step < steps; ++step) {
            place = table[place];
        }
        out[threadIdx.x] = place;
    }
}

torch::Tensor walk(const torch::Tensor& table, const torch::Tensor& start, int64_t steps) {
    auto out = torch::empty_like(start);
    const auto stream = at::cuda::getCurrentCUDAStream();
    walk_kernel<<<1, 32, 0, stream>>>(
        table.data_ptr<int64_t>(), start.data_ptr<int64_t>(), out.data_ptr<int64_t>(), start.numel(), steps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

extension = load_inline(
    name="zoo_walk",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["walk"],
)


class ModelNew(nn.Module):
    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def forward(self, table, start):
        return extension.walk(table, start, self.steps)
