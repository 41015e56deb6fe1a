#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void row_flags_kernel(const float* __restrict__ x, int* counts, bool* any, bool* all, int dim) {
    const unsigned mask = 0xffffffffu;
    const float* row = x + static_cast<int64_t>(blockIdx.x) * dim;
    int count = 0;
    bool some = false;
    bool every = true;
    for (int first = 0; first < dim; first += 32) {
        const int i = first + threadIdx.x;
        const float value = i < dim ? row[i] : 0.0f;  // zero counts nowhere and spoils nothing
        count += __popc(__ballot_sync(mask, value > 0.0f));
        some = __any_sync(mask, value > 3.0f) || some;
        every = __all_sync(mask, value > -3.0f) && every;
    }
    if (threadIdx.x == 0) {
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
    row_flags_kernel<<<rows, 32, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), counts.data_ptr<int>(), any.data_ptr<bool>(), all.data_ptr<bool>(), x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {counts, any, all};
}
