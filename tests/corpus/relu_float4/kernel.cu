#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__device__ __forceinline__ float relu(float value) { return value < 0.0f ? 0.0f : value; }

__global__ void relu_kernel(const float* __restrict__ x, float* __restrict__ out, int64_t count) {
    const int64_t vectors = count / 4;
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < vectors) {
        const float4 four = reinterpret_cast<const float4*>(x)[i];
        reinterpret_cast<float4*>(out)[i] = make_float4(relu(four.x), relu(four.y), relu(four.z), relu(four.w));
    } else if (i - vectors < count - 4 * vectors) {
        const int64_t place = 4 * vectors + (i - vectors);
        out[place] = relu(x[place]);
    }
}

torch::Tensor relu_forward(const torch::Tensor& x) {
    auto out = torch::empty_like(x);
    const int64_t count = x.numel();
    const int threads = 128;
    const unsigned blocks = static_cast<unsigned>((count / 4 + 3 + threads - 1) / threads);
    relu_kernel<<<blocks, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), count);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
