#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <algorithm>

__global__ void relu_kernel(const float* __restrict__ x, float* __restrict__ out, size_t count) {
    const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
    for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
        out[i] = max(x[i], 0.0f);
    }
}

torch::Tensor relu_forward(const torch::Tensor& x) {
    int device = 0;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    cudaDeviceProp properties;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));

    auto out = torch::empty_like(x);
    const size_t count = x.numel();
    const size_t threads = std::min(512, properties.maxThreadsPerBlock);
    const size_t blocks = std::min<size_t>((count + threads - 1) / threads, 8 * properties.multiProcessorCount);
    relu_kernel<<<blocks, threads, 0>>>(x.data_ptr<float>(), out.data_ptr<float>(), count);
    C10_CUDA_CHECK(cudaGetLastError());
    return out;
}
