#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <cassert>

__global__ void relu_kernel(const float* __restrict__ x, float* __restrict__ out, int64_t count) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= count) return;
    assert(i < count);
    out[i] = fmaxf(x[i], 0.0f);
}

torch::Tensor relu_forward(const torch::Tensor& x) {
    auto out = torch::empty_like(x);
    const int64_t count = x.numel();
    const int threads = 96;
    const unsigned blocks = static_cast<unsigned>((count + threads - 1) / threads);
    relu_kernel<<<blocks, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), count);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
