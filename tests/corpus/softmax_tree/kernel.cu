#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void softmax_kernel(const float* __restrict__ x, float* __restrict__ out, int dim) {
    extern __shared__ float scratch[];
    const int tid = threadIdx.x;
    const float* row = x + static_cast<int64_t>(blockIdx.x) * dim;
    float* out_row = out + static_cast<int64_t>(blockIdx.x) * dim;

    float mine = -INFINITY;
    for (int i = tid; i < dim; i += blockDim.x) mine = fmaxf(mine, row[i]);
    scratch[tid] = mine;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) scratch[tid] = fmaxf(scratch[tid], scratch[tid + s]);
        __syncthreads();
    }
    const float largest = scratch[0];
    __syncthreads();  // all have read it

    float sum = 0.0f;
    for (int i = tid; i < dim; i += blockDim.x) sum += expf(row[i] - largest);
    scratch[tid] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) {
            scratch[tid] += scratch[tid + s];
        }
        __syncthreads();
    }
    const float total = scratch[0];
    for (int i = tid; i < dim; i += blockDim.x) out_row[i] = expf(row[i] - largest) / total;
}

torch::Tensor softmax_forward(const torch::Tensor& x) {
    auto out = torch::empty_like(x);
    const int threads = 256;
    const size_t shared_bytes = threads * sizeof(float);
    const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
    softmax_kernel<<<x.size(0), threads, shared_bytes, stream>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
