// Source of the recordings beside this file:
//     nvcc -arch=sm_90a -cubin kernels.cu -o kernels.cubin && cuobjdump -sass kernels.cubin
// The recordings are shortened; the instructions stand as cuobjdump printed them.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

// honest.sass: the constants of expf are loaded by HFMA2.
__global__ void honest_exp(const float* a, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = expf(a[i]) * 0.7071f;
}

// honest.sass: half tensors as input, widened to fp32.
__global__ void honest_widen(const __half* a, float* out) { out[threadIdx.x] = __half2float(a[threadIdx.x]) + 1.0f; }

// tensor_cores.sass
__global__ void gemm_tf32(const float* a, const float* b, float* c) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 8, precision::tf32, row_major> left;
    fragment<matrix_b, 16, 16, 8, precision::tf32, row_major> right;
    fragment<accumulator, 16, 16, 8, float> sum;
    fill_fragment(sum, 0.0f);
    load_matrix_sync(left, a, 8);
    load_matrix_sync(right, b, 16);
    mma_sync(sum, left, right, sum);
    store_matrix_sync(c, sum, 16, mem_row_major);
}

// half.sass: one template, an instance for float beside one for half, as dispatch macros make them.
template <typename T>
__global__ void scale(const T* a, T* out) { out[threadIdx.x] = a[threadIdx.x] * a[threadIdx.x + 32]; }
template __global__ void scale<float>(const float*, float*);
template __global__ void scale<__half>(const __half*, __half*);

// half.sass: fp32 in and out, and half precision between.
__global__ void hidden_half(const float* a, float* out) {
    const __half2 x = __floats2half2_rn(a[threadIdx.x], a[threadIdx.x + 32]);
    const float2 y = __half22float2(__hfma2(x, x, x));
    out[threadIdx.x] = y.x + y.y;
}

// half.sass: products in fp32, of operands rounded to bf16.
__global__ void hidden_bf16(const float* a, float* out) {
    const float x = __bfloat162float(__float2bfloat16(a[threadIdx.x]));
    out[threadIdx.x] = x * x;
}
