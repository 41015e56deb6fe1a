#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

using Matrix = torch::PackedTensorAccessor64<float, 2, torch::RestrictPtrTraits>;

__global__ void relu_kernel(const Matrix x, Matrix out) {
    const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t row = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
    if (row < x.size(0) && column < x.size(1)) {
        const float value = x[row][column];
        out[row][column] = value < 0.0f ? 0.0f : value;
    }
}

torch::Tensor relu_forward(const torch::Tensor& x) {
    auto out = torch::empty_like(x);
    const dim3 block(32, 8);
    const dim3 grid((x.size(1) + block.x - 1) / block.x, (x.size(0) + block.y - 1) / block.y);
    relu_kernel<<<grid, block, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.packed_accessor64<float, 2, torch::RestrictPtrTraits>(),
        out.packed_accessor64<float, 2, torch::RestrictPtrTraits>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
