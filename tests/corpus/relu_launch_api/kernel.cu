#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void relu_kernel(const float* x, float* out, int64_t count, float lowest) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) {
        out[i] = fmaxf(x[i], lowest);
    }
}

torch::Tensor relu_forward(const torch::Tensor& x) {
    auto out = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* to = out.data_ptr<float>();
    int64_t count = x.numel();
    float lowest = 0.0f;
    void* arguments[] = {&from, &to, &count, &lowest};
    const dim3 block(256);
    const dim3 grid(static_cast<unsigned>((count + block.x - 1) / block.x));
    C10_CUDA_CHECK(cudaLaunchKernel(
        reinterpret_cast<const void*>(relu_kernel), grid, block, arguments, 0, at::cuda::getCurrentCUDAStream()));
    return out;
}
