#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__device__ void atomic_max(float* address, float value) {
    int* bits = reinterpret_cast<int*>(address);
    int seen = *bits;
    while (__int_as_float(seen) < value) {
        const int before = atomicCAS(bits, seen, __float_as_int(value));
        if (before == seen) break;
        seen = before;
    }
}

__global__ void column_max_kernel(const float* __restrict__ x, float* out, int rows, int columns) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < rows && column < columns) {
        atomic_max(out + column, x[static_cast<int64_t>(row) * columns + column]);
    }
}

torch::Tensor column_max(const torch::Tensor& x) {
    const int rows = x.size(0);
    const int columns = x.size(1);
    auto out = torch::full({columns}, -std::numeric_limits<float>::infinity(), x.options());
    const dim3 block(16, 16);
    const dim3 grid((columns + 15) / 16, (rows + 15) / 16);
    column_max_kernel<<<grid, block, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), rows, columns);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
