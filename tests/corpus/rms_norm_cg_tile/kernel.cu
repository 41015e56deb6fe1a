#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

constexpr int threads = 96;
constexpr int width = 16;
constexpr int rows_of_block = threads / width;

__global__ void rms_norm_kernel(
    const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out, int rows, int dim,
    float eps) {
    auto block = cg::this_thread_block();
    const cg::thread_block_tile<width> tile = cg::tiled_partition<width>(block);
    const int64_t row = static_cast<int64_t>(blockIdx.x) * rows_of_block + tile.meta_group_rank();
    if (row >= rows) return;
    float squares = 0.0f;
    for (int i = tile.thread_rank(); i < dim; i += tile.size()) squares += x[row * dim + i] * x[row * dim + i];
    for (unsigned offset = tile.size() / 2; offset > 0; offset /= 2) squares += tile.shfl_xor(squares, offset);
    tile.sync();
    const float scale = tile.shfl(rsqrtf(squares / dim + eps), 0);
    for (int i = tile.thread_rank(); i < dim; i += width) {
        out[row * dim + i] = x[row * dim + i] * scale * weight[i];
    }
}

torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double eps) {
    auto out = torch::empty_like(x);
    const int rows = x.size(0);
    const int dim = x.size(1);
    rms_norm_kernel<<<(rows + rows_of_block - 1) / rows_of_block, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), weight.data_ptr<float>(), out.data_ptr<float>(), rows, dim, static_cast<float>(eps));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
