#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void reverse_kernel(const float* __restrict__ x, float* __restrict__ out, int dim) {
    extern __shared__ float row[];
    const int64_t start = static_cast<int64_t>(blockIdx.x) * dim;
    for (int i = threadIdx.x; i < dim; i += blockDim.x) row[i] = x[start + i];
    __syncthreads();
    for (int i = threadIdx.x; i < dim; i += blockDim.x) out[start + i] = row[dim - 1 - i];
}

torch::Tensor reverse(const torch::Tensor& x) {
    auto out = torch::empty_like(x);
    const int dim = x.size(1);
    const int shared_bytes = dim * sizeof(float);
    C10_CUDA_CHECK(cudaFuncSetAttribute(reverse_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
    reverse_kernel<<<x.size(0), 512, shared_bytes, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), dim);
    return out;
}
