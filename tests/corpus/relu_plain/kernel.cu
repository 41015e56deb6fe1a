#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void relu_kernel(const float* x, float* out, int64_t count) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) {
        out[i] = x[i] < 0.0f ? 0.0f : x[i];
    }
}

torch::Tensor relu_forward(const torch::Tensor& x) {
    auto out = torch::empty_like(x);
    const int64_t count = x.numel();
    const int threads = 256;
    const int blocks = static_cast<int>((count + threads - 1) / threads);
    relu_kernel<<<blocks, threads>>>(x.data_ptr<float>(), out.data_ptr<float>(), count);
    return out;
}
