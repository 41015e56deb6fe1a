#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int threads = 256;
constexpr int warps = threads / 32;

__global__ void rms_norm_kernel(
    const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out, int dim, float eps) {
    __shared__ float of_warp[warps];
    __shared__ float scale;
    const float* row = x + static_cast<int64_t>(blockIdx.x) * dim;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < dim; i += threads) {
        squares += row[i] * row[i];
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        squares += __shfl_down_sync(0xffffffff, squares, offset);
    }
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = squares;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0.0f;
        for (int warp = 0; warp < warps; ++warp) total += of_warp[warp];
        scale = rsqrtf(total / dim + eps);
    }
    __syncthreads();
    float* out_row = out + static_cast<int64_t>(blockIdx.x) * dim;
    for (int i = threadIdx.x; i < dim; i += threads) {
        out_row[i] = row[i] * scale * weight[i];
    }
}

torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double eps) {
    auto out = torch::empty_like(x);
    const int rows = x.size(0);
    const int dim = x.size(1);
    rms_norm_kernel<<<rows, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), weight.data_ptr<float>(), out.data_ptr<float>(), dim, static_cast<float>(eps));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
