#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <cuda_bf16.h>

constexpr int threads = 256;

__device__ float sum_of_block(float value) {
    __shared__ float of_warp[threads / 32];
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffff, value, offset);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    float total = 0.0f;
    for (int warp = 0; warp < threads / 32; ++warp) total += of_warp[warp];
    return total;
}

__global__ void rms_norm_kernel(
    const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ weight, __nv_bfloat16* __restrict__ out,
    int dim, float eps) {
    const __nv_bfloat16* row = x + static_cast<int64_t>(blockIdx.x) * dim;
    __nv_bfloat16* out_row = out + static_cast<int64_t>(blockIdx.x) * dim;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < dim; i += threads) {
        const float value = __bfloat162float(row[i]);
        squares += value * value;
    }
    const float scale = rsqrtf(sum_of_block(squares) / dim + eps);
    if (dim % 2 == 0) {
        for (int i = threadIdx.x; i < dim / 2; i += threads) {
            const float2 pair = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162*>(row)[i]);
            const float2 weights = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162*>(weight)[i]);
            reinterpret_cast<__nv_bfloat162*>(out_row)[i] =
                __floats2bfloat162_rn(pair.x * scale * weights.x, pair.y * scale * weights.y);
        }
    } else {
        for (int i = threadIdx.x; i < dim; i += threads) {
            out_row[i] = __float2bfloat16(__bfloat162float(row[i]) * scale * __bfloat162float(weight[i]));
        }
    }
}

torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double eps) {
    auto out = torch::empty_like(x);
    const int dim = x.size(1);
    rms_norm_kernel<<<x.size(0), threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const __nv_bfloat16*>(x.data_ptr<at::BFloat16>()),
        reinterpret_cast<const __nv_bfloat16*>(weight.data_ptr<at::BFloat16>()),
        reinterpret_cast<__nv_bfloat16*>(out.data_ptr<at::BFloat16>()), dim, static_cast<float>(eps));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
