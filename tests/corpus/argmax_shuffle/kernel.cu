#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int warps = 5;

__global__ void argmax_kernel(const float* __restrict__ x, int64_t* __restrict__ out, int rows, int dim) {
    const int lane = threadIdx.x % 32;
    const int row = blockIdx.x * warps + threadIdx.x / 32;
    if (row >= rows) return;
    const float* of_row = x + static_cast<int64_t>(row) * dim;
    float best = -INFINITY;
    int place = 0x7fffffff;  // loses every tie
    for (int i = lane; i < dim; i += 32) {
        if (of_row[i] > best || place == 0x7fffffff) {
            best = of_row[i];
            place = i;
        }
    }
    for (int offset = 16; offset > 0; offset >>= 1) {
        const float other = __shfl_down_sync(0xffffffffu, best, offset);
        const int other_place = __shfl_down_sync(0xffffffffu, place, offset);
        if (other > best || (other == best && other_place < place)) {
            best = other;
            place = other_place;
        }
    }
    place = __shfl_sync(0xffffffffu, place, 0);
    if (lane == place % 32) out[row] = place;
}

torch::Tensor argmax_forward(const torch::Tensor& x) {
    const int rows = x.size(0);
    auto out = torch::empty({rows}, x.options().dtype(torch::kInt64));
    argmax_kernel<<<(rows + warps - 1) / warps, 32 * warps, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<int64_t>(), rows, x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
