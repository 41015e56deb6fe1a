#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void softmax_kernel(const float* __restrict__ x, float* __restrict__ out, int rows, int dim) {
    const int lane = threadIdx.x & 31;
    const int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (row >= rows) return;
    const int64_t start = static_cast<int64_t>(row) * dim;

    float largest = -INFINITY;
    float sum = 0.0f;
    for (int i = lane; i < dim; i += 32) {
        const float value = x[start + i];
        const float before = largest;
        largest = fmaxf(largest, value);
        sum = sum * expf(before - largest) + expf(value - largest);
    }
    for (int offset = 16; offset > 0; offset >>= 1) {
        const float other_largest = __shfl_xor_sync(0xffffffffu, largest, offset);
        const float other_sum = __shfl_xor_sync(0xffffffffu, sum, offset);
        const float both = fmaxf(largest, other_largest);
        // A lane without elements has nothing to give; -inf - -inf would be NaN.
        sum = (sum > 0.0f ? sum * expf(largest - both) : 0.0f) +
              (other_sum > 0.0f ? other_sum * expf(other_largest - both) : 0.0f);
        largest = both;
    }
    for (int i = lane; i < dim; i += 32) out[start + i] = expf(x[start + i] - largest) / sum;
}

torch::Tensor softmax_forward(const torch::Tensor& x) {
    auto out = torch::empty_like(x);
    const int rows = x.size(0);
    const int dim = x.size(1);
    const int warps = 3;
    softmax_kernel<<<(rows + warps - 1) / warps, 32 * warps, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), rows, dim);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
