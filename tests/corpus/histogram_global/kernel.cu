#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void histogram_kernel(const int64_t* __restrict__ x, int* counts, int64_t count) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) {
        atomicAdd(&counts[x[i]], 1);
    }
}

torch::Tensor histogram(const torch::Tensor& x, int64_t bins) {
    auto counts = torch::zeros({bins}, x.options().dtype(torch::kInt));
    const unsigned blocks = static_cast<unsigned>((x.numel() + 255) / 256);
    histogram_kernel<<<blocks, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<int64_t>(), counts.data_ptr<int>(), x.numel());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return counts.to(torch::kLong);
}
