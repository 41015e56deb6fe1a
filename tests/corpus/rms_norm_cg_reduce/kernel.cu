#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

constexpr int threads = 128;
constexpr int warps = threads / 32;

__global__ void rms_norm_kernel(
    const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out, int dim, float eps) {
    __shared__ float of_warp[warps];
    const auto block = cg::this_thread_block();
    const auto warp = cg::tiled_partition<32>(block);
    const int64_t start = static_cast<int64_t>(blockIdx.x) * dim;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < dim; i += threads) squares += x[start + i] * x[start + i];
    squares = cg::reduce(warp, squares, cg::plus<float>());
    if (warp.thread_rank() == 0) of_warp[warp.meta_group_rank()] = squares;
    cg::sync(block);
    float total = 0.0f;
    for (int i = 0; i < warps; ++i) total += of_warp[i];
    const float scale = rsqrtf(total / dim + eps);
    for (int i = threadIdx.x; i < dim; i += threads) out[start + i] = x[start + i] * scale * weight[i];
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
