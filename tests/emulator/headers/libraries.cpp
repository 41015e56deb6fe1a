// curand and cuBLAS, for tests/emulator/test_headers.py to call.
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <curand_kernel.h>

#include <cstring>
#include <exception>

namespace {

template <class Number>
void keep(unsigned*& words, Number number) {
  std::memcpy(words, &number, sizeof(number));
  words += sizeof(number) / sizeof(unsigned);
}

template <class State>
void draw(unsigned long long seed, unsigned long long subsequence, unsigned long long offset, unsigned* words) {
  State state;
  curand_init(seed, subsequence, offset, &state);
  for (int i = 0; i < 6; ++i) keep(words, curand(&state));
  keep(words, curand_uniform(&state));
  keep(words, curand_uniform_double(&state));
  for (int i = 0; i < 3; ++i) keep(words, curand_normal(&state));
  keep(words, curand_normal_double(&state));
  keep(words, curand_normal2(&state));
  skipahead(5ull, &state);
  keep(words, curand(&state));
  skipahead_sequence(3ull, &state);
  keep(words, curand(&state));
  keep(words, curand_log_normal(&state, 0.5f, 0.25f));
  keep(words, curand_normal2_double(&state));
  keep(words, curand(&state));
}

}  // namespace

extern "C" void philox(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
                       unsigned* words) {
  draw<curandStatePhilox4_32_10_t>(seed, subsequence, offset, words);
}
extern "C" void xorwow(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
                       unsigned* words) {
  draw<curandState>(seed, subsequence, offset, words);
}
extern "C" void philox4(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
                        unsigned* words) {
  curandStatePhilox4_32_10_t state;
  curand_init(seed, subsequence, offset, &state);
  keep(words, curand4(&state));
  keep(words, curand_uniform4(&state));
  keep(words, curand_normal4(&state));
  keep(words, curand_uniform2_double(&state));
  keep(words, curand(&state));
  keep(words, curand4(&state));
}
extern "C" void normals(unsigned long long seed, float* out, long count) {
  for (long i = 0; i < count; ++i) {
    curandState state;
    curand_init(seed, i, 0, &state);
    out[i] = curand_normal(&state);
  }
}

extern "C" int sgemm(int op_a, int op_b, int m, int n, int k, float alpha, const float* a, int lda, const float* b,
                     int ldb, float beta, float* c, int ldc) {
  cublasHandle_t handle;
  cublasCreate(&handle);
  const cublasStatus_t status =
      cublasSgemm(handle, static_cast<cublasOperation_t>(op_a), static_cast<cublasOperation_t>(op_b), m, n, k, &alpha,
                  a, lda, b, ldb, &beta, c, ldc);
  cublasDestroy(handle);
  return status;
}
extern "C" int half_batches(int m, int n, int k, const void* a, const void* b, float* c, int batches) {
  cublasHandle_t handle;
  cublasCreate(&handle);
  const float one = 1.0f, zero = 0.0f;
  const cublasStatus_t status = cublasGemmStridedBatchedEx(
      handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, a, CUDA_R_16F, m, m * k, b, CUDA_R_16F, k, k * n, &zero, c,
      CUDA_R_32F, m, m * n, batches, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT_TENSOR_OP);
  cublasDestroy(handle);
  return status;
}
// out: dot, norm, sum of magnitudes; y becomes 2 x + y, then A * x.
extern "C" void vectors(int m, int n, const float* a, const float* x, float* y, float* product, float* out) {
  cublasHandle_t handle;
  cublasCreate(&handle);
  const float one = 1.0f, two = 2.0f, zero = 0.0f;
  cublasSdot(handle, n, x, 1, y, 1, &out[0]);
  cublasSnrm2(handle, n, x, 1, &out[1]);
  cublasSasum(handle, n, x, 1, &out[2]);
  cublasSaxpy(handle, n, &two, x, 1, y, 1);
  cublasSgemv(handle, CUBLAS_OP_N, m, n, &one, a, m, x, 1, &zero, product, 1);
  cublasDestroy(handle);
}
// A product whose first factor lacks its last column. Gives the error's text.
extern "C" const char* sgemm_past_the_end() {
  static char text[512];
  float *a, *b, *c;
  cudaMalloc(&a, 12 * sizeof(float));
  cudaMalloc(&b, 16 * sizeof(float));
  cudaMalloc(&c, 16 * sizeof(float));
  try {
    sgemm(0, 0, 4, 4, 4, 1.0f, a, 4, b, 4, 0.0f, c, 4);
  } catch (const std::exception& error) {
    std::strncpy(text, error.what(), sizeof(text) - 1);
  }
  cudaFree(a);
  cudaFree(b);
  cudaFree(c);
  return text;
}
