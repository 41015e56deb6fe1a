#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int threads = 256;

__global__ void cumsum_kernel(const float* __restrict__ x, float* __restrict__ out, int length) {
    __shared__ float tiles[2][threads];
    const int tid = threadIdx.x;
    const int64_t start = static_cast<int64_t>(blockIdx.x) * length;
    float carried = 0.0f;
    for (int first = 0; first < length; first += threads) {
        int from = 0;
        tiles[from][tid] = first + tid < length ? x[start + first + tid] : 0.0f;
        __syncthreads();
        for (int step = 1; step < threads; step *= 2) {
            const float left = tid >= step ? tiles[from][tid - step] : 0.0f;
            tiles[1 - from][tid] = tiles[from][tid] + left;
            from = 1 - from;
            __syncthreads();
        }
        if (first + tid < length) out[start + first + tid] = carried + tiles[from][tid];
        carried += tiles[from][threads - 1];
        __syncthreads();
    }
}

torch::Tensor cumsum_forward(const torch::Tensor& x) {
    auto out = torch::empty_like(x);
    cumsum_kernel<<<x.size(0), threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
