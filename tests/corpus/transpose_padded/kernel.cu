#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int kTile = 32;
constexpr int kRows = 8;

__global__ void transpose_kernel(const float* __restrict__ x, float* __restrict__ out, int height, int width) {
    __shared__ float tile[kTile][kTile + 1];
    int column = blockIdx.x * kTile + threadIdx.x;
    int row = blockIdx.y * kTile + threadIdx.y;
    for (int step = 0; step < kTile; step += kRows) {
        if (column < width && row + step < height) {
            tile[threadIdx.y + step][threadIdx.x] = x[static_cast<int64_t>(row + step) * width + column];
        }
    }
    __syncthreads();
    column = blockIdx.y * kTile + threadIdx.x;
    row = blockIdx.x * kTile + threadIdx.y;
    for (int step = 0; step < kTile; step += kRows) {
        if (column < height && row + step < width) {
            out[static_cast<int64_t>(row + step) * height + column] = tile[threadIdx.x][threadIdx.y + step];
        }
    }
}

torch::Tensor transposed(const torch::Tensor& x) {
    const int height = x.size(0);
    const int width = x.size(1);
    auto out = torch::empty({width, height}, x.options());
    const dim3 block(kTile, kRows);
    const dim3 grid((width + kTile - 1) / kTile, (height + kTile - 1) / kTile);
    transpose_kernel<<<grid, block, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), height, width);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
