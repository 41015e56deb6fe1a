#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <cooperative_groups.h>

__global__ void count_kernel(const float* __restrict__ x, int* counts, int dim) {
    namespace cg = cooperative_groups;
    const float* row = x + static_cast<int64_t>(blockIdx.x) * dim;
    for (int i = threadIdx.x; i < dim; i += blockDim.x) {
        if (row[i] > 0.0f) {
            const cg::coalesced_group together = cg::coalesced_threads();
            if (together.thread_rank() == 0) atomicAdd(counts + blockIdx.x, static_cast<int>(together.size()));
        }
    }
}

torch::Tensor count_positive(const torch::Tensor& x) {
    auto counts = torch::zeros({x.size(0)}, x.options().dtype(torch::kInt32));
    count_kernel<<<x.size(0), 96, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), counts.data_ptr<int>(), x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return counts;
}
