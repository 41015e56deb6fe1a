#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void relu_kernel(const float* __restrict__ x, float* __restrict__ out, int64_t dim, int64_t chunk) {
    const int64_t start = blockIdx.y * dim;
    const int64_t last = min((blockIdx.x + 1) * chunk, dim);
    for (int64_t i = blockIdx.x * chunk + threadIdx.x; i < last; i += blockDim.x) {
        out[start + i] = fmaxf(x[start + i], 0.0f);
    }
}

torch::Tensor relu_forward(const torch::Tensor& x) {
    auto out = torch::empty_like(x);
    const int64_t rows = x.size(0);
    const int64_t dim = x.size(1);
    const int64_t chunk = 8192;
    const dim3 grid((dim + chunk - 1) / chunk, rows);
    relu_kernel<<<grid, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), dim, chunk);
    return out;
}
