#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void matmul_kernel(const float* a, const float* b, float* c, int rows, int inner, int columns, int tile) {
    extern __shared__ float tile_a[];
    float* tile_b = tile_a + tile * tile;
    const int row = blockIdx.y * tile + threadIdx.y;
    const int column = blockIdx.x * tile + threadIdx.x;
    const int mine = threadIdx.y * tile + threadIdx.x;
    float sum = 0.0f;
    for (int step = 0; step < inner; step += tile) {
        const int along_a = step + threadIdx.x;
        const int along_b = step + threadIdx.y;
        tile_a[mine] = row < rows && along_a < inner ? a[row * inner + along_a] : 0.0f;
        tile_b[mine] = along_b < inner && column < columns ? b[along_b * columns + column] : 0.0f;
        __syncthreads();
        for (int k = 0; k < tile; ++k) sum += tile_a[threadIdx.y * tile + k] * tile_b[k * tile + threadIdx.x];
        __syncthreads();
    }
    if (row < rows && column < columns) c[row * columns + column] = sum;
}

torch::Tensor matmul_forward(const torch::Tensor& a, const torch::Tensor& b) {
    const int rows = a.size(0);
    const int inner = a.size(1);
    const int columns = b.size(1);
    auto c = torch::empty({rows, columns}, a.options());
    const int tile = 16;
    const dim3 grid((columns + tile - 1) / tile, (rows + tile - 1) / tile);
    const size_t shared_bytes = 2 * tile * tile * sizeof(float);
    matmul_kernel<<<grid, dim3(tile, tile), shared_bytes, at::cuda::getCurrentCUDAStream()>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), rows, inner, columns, tile);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return c;
}
