#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int threads = 256;
constexpr int warps = threads / 32;

__global__ void cumsum_kernel(const float* __restrict__ x, float* __restrict__ out, int length) {
    __shared__ float of_warp[warps];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int64_t start = static_cast<int64_t>(blockIdx.x) * length;
    float carried = 0.0f;
    for (int tile = 0; tile < length; tile += threads) {
        const int i = tile + threadIdx.x;
        float value = i < length ? x[start + i] : 0.0f;
        for (int offset = 1; offset < 32; offset *= 2) {
            const float left = __shfl_up_sync(0xffffffffu, value, offset);
            if (lane >= offset) value += left;
        }
        if (lane == 31) of_warp[warp] = value;
        __syncthreads();
        float before = 0.0f;
        float total = 0.0f;
        for (int each = 0; each < warps; ++each) {
            if (each < warp) before += of_warp[each];
            total += of_warp[each];
        }
        if (i < length) out[start + i] = carried + before + value;
        carried += total;
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
