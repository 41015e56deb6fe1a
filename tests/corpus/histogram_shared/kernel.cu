#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void histogram_kernel(const int64_t* __restrict__ x, unsigned long long* counts, int64_t count, int bins) {
    extern __shared__ int of_block[];
    for (int bin = threadIdx.x; bin < bins; bin += blockDim.x) of_block[bin] = 0;
    __syncthreads();
    const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
        atomicAdd(&of_block[x[i]], 1);
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < bins; bin += blockDim.x) {
        atomicAdd(&counts[bin], static_cast<unsigned long long>(of_block[bin]));
    }
}

torch::Tensor histogram(const torch::Tensor& x, int64_t bins) {
    auto counts = torch::zeros({bins}, x.options());
    histogram_kernel<<<20, 256, bins * sizeof(int), at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<int64_t>(), reinterpret_cast<unsigned long long*>(counts.data_ptr<int64_t>()), x.numel(), bins);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return counts;
}
