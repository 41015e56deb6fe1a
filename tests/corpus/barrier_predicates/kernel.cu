#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void row_flags_kernel(const float* __restrict__ x, int* counts, bool* any, bool* all, int dim) {
    const float* row = x + static_cast<int64_t>(blockIdx.x) * dim;
    int count = 0;
    int some = 0;
    int every = 1;
    for (int first = 0; first < dim; first += blockDim.x) {
        const int i = first + threadIdx.x;
        const float value = i < dim ? row[i] : 0.0f;
        count += __syncthreads_count(value > 0.0f);
        some |= __syncthreads_or(value > 3.0f) != 0;
        every &= __syncthreads_and(value > -3.0f) != 0;
    }
    if (threadIdx.x == blockDim.x - 1) {
        counts[blockIdx.x] = count;
        any[blockIdx.x] = some;
        all[blockIdx.x] = every;
    }
}

std::vector<torch::Tensor> row_flags(const torch::Tensor& x) {
    const int64_t rows = x.size(0);
    auto counts = torch::empty({rows}, x.options().dtype(torch::kInt32));
    auto any = torch::empty({rows}, x.options().dtype(torch::kBool));
    auto all = torch::empty({rows}, x.options().dtype(torch::kBool));
    row_flags_kernel<<<rows, 128, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), counts.data_ptr<int>(), any.data_ptr<bool>(), all.data_ptr<bool>(), x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {counts, any, all};
}
