#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void difference_kernel(const float* __restrict__ x, float* __restrict__ out, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        out[i] = i > 0 ? x[i] - x[i - 1] : x[i];
    }
}

torch::Tensor difference(const torch::Tensor& x) {
    auto out = torch::empty_like(x);
    const int count = x.numel();
    difference_kernel<<<(count + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), count);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
