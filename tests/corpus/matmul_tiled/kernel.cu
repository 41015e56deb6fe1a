#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#define TILE 16

__global__ void matmul_kernel(
    const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int rows, int inner,
    int columns) {
    __shared__ float tile_a[TILE][TILE], tile_b[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y;
    const int column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int step = 0; step < inner; step += TILE) {
        const int along_a = step + threadIdx.x;
        const int along_b = step + threadIdx.y;
        tile_a[threadIdx.y][threadIdx.x] = row < rows && along_a < inner ? a[row * inner + along_a] : 0.0f;
        tile_b[threadIdx.y][threadIdx.x] = along_b < inner && column < columns ? b[along_b * columns + column] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE; ++k) sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
        __syncthreads();  // all have used the tiles
    }
    if (row < rows && column < columns) {
        c[row * columns + column] = sum;
    }
}

torch::Tensor matmul_forward(const torch::Tensor& a, const torch::Tensor& b) {
    const int rows = a.size(0);
    const int inner = a.size(1);
    const int columns = b.size(1);
    auto c = torch::empty({rows, columns}, a.options());
    const dim3 block(TILE, TILE);
    const dim3 grid((columns + TILE - 1) / TILE, (rows + TILE - 1) / TILE);
    matmul_kernel<<<grid, block, 0, at::cuda::getCurrentCUDAStream()>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), rows, inner, columns);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return c;
}
