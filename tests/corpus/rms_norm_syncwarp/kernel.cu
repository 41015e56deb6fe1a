#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int threads = 128;

__global__ void rms_norm_kernel(
    const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out, int dim, float eps) {
    __shared__ float scratch[threads];
    const unsigned tid = threadIdx.x;
    const float* row = x + static_cast<int64_t>(blockIdx.x) * dim;
    float squares = 0.0f;
    for (int i = tid; i < dim; i += threads) squares = fmaf(row[i], row[i], squares);
    scratch[tid] = squares;
    __syncthreads();
    if (tid < 64) scratch[tid] += scratch[tid + 64];
    __syncthreads();
    if (tid < 32) {
        float* shared = scratch;
        float sum = shared[tid];
        for (int offset = 32; offset > 0; offset /= 2) {
            sum += shared[tid + offset];
            __syncwarp();
            shared[tid] = sum;
            __syncwarp();
        }
    }
    __syncthreads();
    const float scale = rsqrtf(scratch[0] / dim + eps);
    float* out_row = out + static_cast<int64_t>(blockIdx.x) * dim;
    for (int i = tid; i < dim; i += threads) out_row[i] = row[i] * scale * weight[i];
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
