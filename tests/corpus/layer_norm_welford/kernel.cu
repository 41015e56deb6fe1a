#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int threads = 256;

struct Moments {
    float count;
    float mean;
    float squares;  // of the distances from the mean
};

__device__ Moments joined(const Moments& a, const Moments& b) {
    const float count = a.count + b.count;
    if (count == 0.0f) return a;
    const float distance = b.mean - a.mean;
    return {count, a.mean + distance * b.count / count,
            a.squares + b.squares + distance * distance * a.count * b.count / count};
}

__global__ void layer_norm_kernel(
    const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
    float* __restrict__ out, int dim, float eps) {
    __shared__ Moments of_warp[threads / 32];
    const float* row = x + static_cast<int64_t>(blockIdx.x) * dim;
    Moments mine = {0.0f, 0.0f, 0.0f};
    for (int i = threadIdx.x; i < dim; i += threads) {
        mine.count += 1.0f;
        const float distance = row[i] - mine.mean;
        mine.mean += distance / mine.count;
        mine.squares += distance * (row[i] - mine.mean);
    }
    for (int mask = 1; mask < 32; mask *= 2) {
        Moments other;
        other.count = __shfl_xor_sync(0xffffffffu, mine.count, mask);
        other.mean = __shfl_xor_sync(0xffffffffu, mine.mean, mask);
        other.squares = __shfl_xor_sync(0xffffffffu, mine.squares, mask);
        mine = joined(mine, other);
    }
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
    __syncthreads();
    Moments all = of_warp[0];
    for (int warp = 1; warp < threads / 32; ++warp) all = joined(all, of_warp[warp]);
    const float scale = rsqrtf(all.squares / all.count + eps);
    float* out_row = out + static_cast<int64_t>(blockIdx.x) * dim;
    for (int i = threadIdx.x; i < dim; i += threads) {
        out_row[i] = (row[i] - all.mean) * scale * weight[i] + bias[i];
    }
}

torch::Tensor layer_norm(
    const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, double eps) {
    auto out = torch::empty_like(x);
    layer_norm_kernel<<<x.size(0), threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), out.data_ptr<float>(), x.size(1),
        static_cast<float>(eps));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
