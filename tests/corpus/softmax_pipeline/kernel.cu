#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void largest_kernel(const float* __restrict__ x, float* __restrict__ largest, int rows, int dim) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    float mine = -INFINITY;
    for (int i = threadIdx.x; i < dim; i += 32) mine = fmaxf(mine, x[static_cast<int64_t>(row) * dim + i]);
    for (int offset = 16; offset > 0; offset /= 2) mine = fmaxf(mine, __shfl_xor_sync(0xffffffffu, mine, offset));
    if (threadIdx.x == 0) largest[row] = mine;
}

__global__ void exponent_kernel(
    const float* __restrict__ x, const float* __restrict__ largest, float* __restrict__ out, float* __restrict__ sums,
    int dim) {
    const int64_t start = static_cast<int64_t>(blockIdx.x) * dim;
    const float shift = -largest[blockIdx.x];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < dim; i += blockDim.x) {
        const float value = __expf(__fadd_rn(x[start + i], shift));
        out[start + i] = value;
        sum = __fmaf_rn(value, 1.0f, sum);
    }
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
    if (threadIdx.x % 32 == 0) atomicAdd(sums + blockIdx.x, sum);
}

__global__ void divide_kernel(float* __restrict__ out, const float* __restrict__ sums, int dim) {
    const int64_t start = static_cast<int64_t>(blockIdx.x) * dim;
    for (int i = threadIdx.x; i < dim; i += blockDim.x) out[start + i] = __fdividef(out[start + i], sums[blockIdx.x]);
}

torch::Tensor softmax_forward(const torch::Tensor& x) {
    const int rows = x.size(0);
    const int dim = x.size(1);
    auto out = torch::empty_like(x);
    auto largest = torch::empty({rows}, x.options());
    auto sums = torch::zeros({rows}, x.options());
    const auto stream = at::cuda::getCurrentCUDAStream();
    const dim3 block(32, 4);
    largest_kernel<<<(rows + 3) / 4, block, 0, stream>>>(x.data_ptr<float>(), largest.data_ptr<float>(), rows, dim);
    exponent_kernel<<<rows, 256, 0, stream>>>(
        x.data_ptr<float>(), largest.data_ptr<float>(), out.data_ptr<float>(), sums.data_ptr<float>(), dim);
    divide_kernel<<<rows, 256, 0, stream>>>(out.data_ptr<float>(), sums.data_ptr<float>(), dim);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
