#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <curand_kernel.h>

__global__ void relu_dropout_kernel(
    const float* __restrict__ x, float* __restrict__ out, int64_t count, float probability, unsigned long long seed) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= count) return;
    curandStatePhilox4_32_10_t state;
    curand_init(seed, i, 0, &state);
    const float chance = curand_uniform(&state);  // in (0, 1]
    const float noise = curand_normal(&state);
    float value = 0.0f;
    if (chance > probability) {
        value = fmaxf(x[i], 0.0f) / (1.0f - probability);
    }
    // A generator out of its range shows.
    out[i] = chance <= 1.0f ? value + 0.0f * noise : -1.0f;
}

torch::Tensor relu_forward(const torch::Tensor& x, double probability, int64_t seed) {
    auto out = torch::empty_like(x);
    const int64_t count = x.numel();
    relu_dropout_kernel<<<static_cast<unsigned>((count + 255) / 256), 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), count, static_cast<float>(probability),
        static_cast<unsigned long long>(seed));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
