#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#include <cublas_v2.h>

__global__ void bias_kernel(float* c, const float* __restrict__ bias, int64_t count, int columns) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) c[i] += bias[i % columns];
}

torch::Tensor bmm_bias(const torch::Tensor& a, const torch::Tensor& b, const torch::Tensor& bias) {
    const int batch = a.size(0);
    const int rows = a.size(1);
    const int inner = a.size(2);
    const int columns = b.size(1);
    auto c = torch::empty({batch, rows, columns}, a.options());
    const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
    const float alpha = 1.0f;
    const float beta = 0.0f;
    cublasHandle_t handle;
    TORCH_CHECK(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS, "cublasCreate failed");
    cublasSetStream(handle, stream);
    const cublasStatus_t status = cublasSgemmStridedBatched(
        handle, CUBLAS_OP_T, CUBLAS_OP_N, columns, rows, inner, &alpha, b.data_ptr<float>(), inner,
        static_cast<long long>(columns) * inner, a.data_ptr<float>(), inner, static_cast<long long>(rows) * inner,
        &beta, c.data_ptr<float>(), columns, static_cast<long long>(rows) * columns, batch);
    TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS, "cublasSgemmStridedBatched failed");
    const unsigned blocks = static_cast<unsigned>((c.numel() + 255) / 256);
    bias_kernel<<<blocks, 256, 0, stream>>>(c.data_ptr<float>(), bias.data_ptr<float>(), c.numel(), columns);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    C10_CUDA_CHECK(cudaStreamSynchronize(stream));
    cublasDestroy(handle);
    return c;
}
