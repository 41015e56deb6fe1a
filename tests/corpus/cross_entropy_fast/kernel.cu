#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void cross_entropy_kernel(
    const float* __restrict__ logits, const int64_t* __restrict__ targets, double* __restrict__ total, int rows,
    int classes) {
    const int lane = threadIdx.x;
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const float* of_row = logits + static_cast<int64_t>(row) * classes;
    float largest = -INFINITY;
    for (int i = lane; i < classes; i += 32) largest = fmaxf(largest, of_row[i]);
    for (int offset = 16; offset > 0; offset /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    }
    float sum = 0.0f;
    for (int i = lane; i < classes; i += 32) sum += __expf(of_row[i] - largest);
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (lane == 0) {
        const float loss = __logf(sum) + largest - of_row[targets[row]];
        atomicAdd(total, static_cast<double>(loss) / rows);
    }
}

torch::Tensor cross_entropy(const torch::Tensor& logits, const torch::Tensor& targets) {
    const int rows = logits.size(0);
    const int classes = logits.size(1);
    auto total = torch::zeros({}, logits.options().dtype(torch::kFloat64));
    const dim3 block(32, 6);
    cross_entropy_kernel<<<(rows + block.y - 1) / block.y, block, 0, at::cuda::getCurrentCUDAStream()>>>(
        logits.data_ptr<float>(), targets.data_ptr<int64_t>(), total.data_ptr<double>(), rows, classes);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return total.to(torch::kFloat32);
}
