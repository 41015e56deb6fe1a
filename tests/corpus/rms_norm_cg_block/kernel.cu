#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

constexpr int threads = 256;

__device__ float sum_of_block(const cg::thread_block& block, float* scratch, float value) {
    const unsigned rank = block.thread_rank();
    scratch[rank] = value;
    for (unsigned half = block.size() / 2; half > 0; half /= 2) {
        block.sync();
        if (rank < half) scratch[rank] += scratch[rank + half];
    }
    block.sync();
    return scratch[0];
}

__global__ void rms_norm_kernel(
    const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out, int dim, float eps) {
    __shared__ float scratch[threads];
    const cg::thread_block block = cg::this_thread_block();
    const int64_t start = static_cast<int64_t>(block.group_index().x) * dim;
    float squares = 0.0f;
    for (int i = block.thread_index().x; i < dim; i += block.size()) squares += x[start + i] * x[start + i];
    const float scale = rsqrtf(sum_of_block(block, scratch, squares) / dim + eps);
    for (int i = block.thread_rank(); i < dim; i += block.size()) {
        out[start + i] = x[start + i] * scale * weight[i];
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
