#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <climits>

__global__ void column_kernel(
    const float* __restrict__ x, const int* __restrict__ k, float* sums, double* wide_sums, int* counts, int* largest,
    int* smallest, int64_t count, int columns) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const int column = i % columns;
    atomicAdd(&sums[column], fabsf(x[i]));
    atomicAdd(&wide_sums[column], fabs(static_cast<double>(x[i])));
    atomicAdd(&counts[column], k[i]);
    atomicMax(largest + column, k[i]);
    atomicMin(smallest + column, k[i]);
}

std::vector<torch::Tensor> column_statistics(const torch::Tensor& x, const torch::Tensor& k) {
    const int columns = x.size(1);
    auto sums = torch::zeros({columns}, x.options());
    auto wide_sums = torch::zeros({columns}, x.options().dtype(torch::kFloat64));
    auto counts = torch::zeros({columns}, k.options());
    auto largest = torch::full({columns}, INT_MIN, k.options());
    auto smallest = torch::full({columns}, INT_MAX, k.options());
    const unsigned blocks = static_cast<unsigned>((x.numel() + 255) / 256);
    column_kernel<<<blocks, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), k.data_ptr<int>(), sums.data_ptr<float>(), wide_sums.data_ptr<double>(),
        counts.data_ptr<int>(), largest.data_ptr<int>(), smallest.data_ptr<int>(), x.numel(), columns);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {sums, wide_sums, counts, largest, smallest};
}
