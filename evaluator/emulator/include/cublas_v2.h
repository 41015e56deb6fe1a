// Subset of cuBLAS used by submissions: matrix and vector products, column-major.
//
// Each call runs as a single-threaded kernel named after the cuBLAS function, so an illegal access is reported with the
// function's name. Pointers to scalars may point to host or device memory: both are the same memory.
#ifndef WARPGRADE_EMU_CUBLAS_V2_H
#define WARPGRADE_EMU_CUBLAS_V2_H

#include <cstddef>

#include <driver_types.h>
#include <library_types.h>

#include "emu/launch.h"
#include "emu_lib/blas.h"
#include "emu_lib/blas_vectors.h"

typedef enum {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_MAPPING_ERROR = 11,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_INTERNAL_ERROR = 14,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
  CUBLAS_STATUS_LICENSE_ERROR = 16,
} cublasStatus_t;

typedef enum {
  CUBLAS_OP_N = 0,
  CUBLAS_OP_T = 1,
  CUBLAS_OP_C = 2,  // Same as T: complex types are missing.
} cublasOperation_t;

typedef enum { CUBLAS_POINTER_MODE_HOST = 0, CUBLAS_POINTER_MODE_DEVICE = 1 } cublasPointerMode_t;

typedef enum {
  CUBLAS_DEFAULT_MATH = 0,
  CUBLAS_TENSOR_OP_MATH = 1,
  CUBLAS_PEDANTIC_MATH = 2,
  CUBLAS_TF32_TENSOR_OP_MATH = 3,
  CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16,
} cublasMath_t;

typedef enum {
  CUBLAS_COMPUTE_16F = 64,
  CUBLAS_COMPUTE_16F_PEDANTIC = 65,
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_32F_PEDANTIC = 69,
  CUBLAS_COMPUTE_64F = 70,
  CUBLAS_COMPUTE_64F_PEDANTIC = 71,
  CUBLAS_COMPUTE_32I = 72,
  CUBLAS_COMPUTE_32I_PEDANTIC = 73,
  CUBLAS_COMPUTE_32F_FAST_16F = 74,
  CUBLAS_COMPUTE_32F_FAST_16BF = 75,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
} cublasComputeType_t;

typedef enum {
  CUBLAS_GEMM_DEFAULT = -1,
  CUBLAS_GEMM_DFALT = -1,
  CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99,
  CUBLAS_GEMM_DFALT_TENSOR_OP = 99,
} cublasGemmAlgo_t;

typedef cudaDataType cublasDataType_t;

struct cublasContext {
  cudaStream_t stream = nullptr;
  cublasMath_t math_mode = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
};
typedef cublasContext* cublasHandle_t;

// Handles.

inline cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

// All settings are stored without effect: work is in order, and sums are more accurate than any mode requires.
#define EMU_CUBLAS_SETTING(Name, Type, field)                                 \
  inline cublasStatus_t cublasSet##Name(cublasHandle_t handle, Type value) {  \
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;              \
    handle->field = value;                                                    \
    return CUBLAS_STATUS_SUCCESS;                                             \
  }                                                                           \
  inline cublasStatus_t cublasGet##Name(cublasHandle_t handle, Type* value) { \
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;              \
    *value = handle->field;                                                   \
    return CUBLAS_STATUS_SUCCESS;                                             \
  }
EMU_CUBLAS_SETTING(Stream, cudaStream_t, stream)
EMU_CUBLAS_SETTING(MathMode, cublasMath_t, math_mode)
EMU_CUBLAS_SETTING(PointerMode, cublasPointerMode_t, pointer_mode)
#undef EMU_CUBLAS_SETTING

inline cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void*, std::size_t) {
  return handle == nullptr ? CUBLAS_STATUS_NOT_INITIALIZED : CUBLAS_STATUS_SUCCESS;
}

inline const char* cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR:
      return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "unknown cuBLAS status";
}
inline const char* cublasGetStatusString(cublasStatus_t status) { return cublasGetStatusName(status); }

namespace emu::lib {

// cuBLAS's name of an element type, for functions with the type in their name.
template <class T>
inline constexpr cudaDataType kDataType = CUDA_R_32F;
template <>
inline constexpr cudaDataType kDataType<double> = CUDA_R_64F;
template <>
inline constexpr cudaDataType kDataType<__half> = CUDA_R_16F;

// Type of alpha and beta.
inline cudaDataType scale_type(cublasComputeType_t compute) {
  switch (compute) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
      return CUDA_R_16F;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
      return CUDA_R_64F;
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC:
      return CUDA_R_32I;
    default:
      return CUDA_R_32F;
  }
}
// Before CUDA 11 the compute type was an element type.
inline cublasComputeType_t compute_type(cudaDataType type) {
  switch (type) {
    case CUDA_R_16F:
      return CUBLAS_COMPUTE_16F;
    case CUDA_R_64F:
      return CUBLAS_COMPUTE_64F;
    case CUDA_R_32I:
      return CUBLAS_COMPUTE_32I;
    default:
      return CUBLAS_COMPUTE_32F;
  }
}

// Matrices of a batch: the first matrix and the distance in elements, or a list of pointers.
struct Batch {
  const void* first;
  const void* const* list;
  cudaDataType type;
  int leading;
  long long stride;

  const void* data(int index) const { return list != nullptr ? list[index] : first; }
  std::size_t offset(int index) const { return list != nullptr ? 0 : static_cast<std::size_t>(stride) * index; }
};
inline Batch strided(const void* data, cudaDataType type, int leading, long long stride = 0) {
  return {data, nullptr, type, leading, stride};
}
inline Batch listed(const void* const* list, cudaDataType type, int leading) {
  return {nullptr, list, type, leading, 0};
}

// Common implementation of all matrix products above.
inline cublasStatus_t gemm_batches(const char* name, cublasHandle_t handle, cublasOperation_t op_a,
                                   cublasOperation_t op_b, int m, int n, int k, const void* alpha, const Batch& a,
                                   const Batch& b, const void* beta, const Batch& c, int batches, cudaDataType scale) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const bool a_transposed = op_a != CUBLAS_OP_N, b_transposed = op_b != CUBLAS_OP_N;
  const int rows_a = a_transposed ? k : m, rows_b = b_transposed ? n : k;
  const auto too_short = [](int leading, int rows) { return leading < (rows > 1 ? rows : 1); };
  if (m < 0 || n < 0 || k < 0 || batches < 0 || too_short(a.leading, rows_a) || too_short(b.leading, rows_b) ||
      too_short(c.leading, m)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!is_real_type(a.type) || !is_real_type(b.type) || !is_real_type(c.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (m == 0 || n == 0 || batches == 0) return CUBLAS_STATUS_SUCCESS;
  emu::launch<false>(name, 0, emu::Config(1, 1), [&] {
    const double scale_product = load_element(alpha, scale, 0), scale_before = load_element(beta, scale, 0);
    for (int i = 0; i < batches; ++i) {
      gemm(m, n, k, scale_product, MatrixView{a.data(i), a.type, a_transposed, a.leading, a.offset(i)},
           MatrixView{b.data(i), b.type, b_transposed, b.leading, b.offset(i)}, scale_before,
           const_cast<void*>(c.data(i)), c.type, c.leading, c.offset(i));
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

// Runs a vector function as a single-threaded kernel.
template <class Body>
cublasStatus_t vector_call(const char* name, cublasHandle_t handle, Body body) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  emu::launch<false>(name, 0, emu::Config(1, 1), body);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace emu::lib

// Matrix products: C = alpha * op(A) * op(B) + beta * C.

#define EMU_CUBLAS_GEMM(Letter, T)                                                                                    \
  inline cublasStatus_t cublas##Letter##gemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,   \
                                             int m, int n, int k, const T* alpha, const T* a, int lda, const T* b,    \
                                             int ldb, const T* beta, T* c, int ldc) {                                 \
    constexpr cudaDataType type = emu::lib::kDataType<T>;                                                             \
    return emu::lib::gemm_batches("cublas" #Letter "gemm", handle, op_a, op_b, m, n, k, alpha,                        \
                                  emu::lib::strided(a, type, lda), emu::lib::strided(b, type, ldb), beta,             \
                                  emu::lib::strided(c, type, ldc), 1, type);                                          \
  }                                                                                                                   \
  inline cublasStatus_t cublas##Letter##gemmStridedBatched(                                                           \
      cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k, const T* alpha,     \
      const T* a, int lda, long long stride_a, const T* b, int ldb, long long stride_b, const T* beta, T* c, int ldc, \
      long long stride_c, int batches) {                                                                              \
    constexpr cudaDataType type = emu::lib::kDataType<T>;                                                             \
    return emu::lib::gemm_batches("cublas" #Letter "gemmStridedBatched", handle, op_a, op_b, m, n, k, alpha,          \
                                  emu::lib::strided(a, type, lda, stride_a),                                          \
                                  emu::lib::strided(b, type, ldb, stride_b), beta,                                    \
                                  emu::lib::strided(c, type, ldc, stride_c), batches, type);                          \
  }                                                                                                                   \
  inline cublasStatus_t cublas##Letter##gemmBatched(                                                                  \
      cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k, const T* alpha,     \
      const T* const a[], int lda, const T* const b[], int ldb, const T* beta, T* const c[], int ldc, int batches) {  \
    constexpr cudaDataType type = emu::lib::kDataType<T>;                                                             \
    const auto list = [](auto pointers) { return reinterpret_cast<const void* const*>(pointers); };                   \
    return emu::lib::gemm_batches("cublas" #Letter "gemmBatched", handle, op_a, op_b, m, n, k, alpha,                 \
                                  emu::lib::listed(list(a), type, lda), emu::lib::listed(list(b), type, ldb), beta,   \
                                  emu::lib::listed(list(c), type, ldc), batches, type);                               \
  }
EMU_CUBLAS_GEMM(S, float)
EMU_CUBLAS_GEMM(D, double)
EMU_CUBLAS_GEMM(H, __half)
#undef EMU_CUBLAS_GEMM

inline cublasStatus_t cublasSgemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,
                                    int k, const float* alpha, const void* a, cudaDataType type_a, int lda,
                                    const void* b, cudaDataType type_b, int ldb, const float* beta, void* c,
                                    cudaDataType type_c, int ldc) {
  return emu::lib::gemm_batches("cublasSgemmEx", handle, op_a, op_b, m, n, k, alpha, emu::lib::strided(a, type_a, lda),
                                emu::lib::strided(b, type_b, ldb), beta, emu::lib::strided(c, type_c, ldc), 1,
                                CUDA_R_32F);
}

inline cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,
                                   int k, const void* alpha, const void* a, cudaDataType type_a, int lda, const void* b,
                                   cudaDataType type_b, int ldb, const void* beta, void* c, cudaDataType type_c,
                                   int ldc, cublasComputeType_t compute, cublasGemmAlgo_t) {
  return emu::lib::gemm_batches("cublasGemmEx", handle, op_a, op_b, m, n, k, alpha, emu::lib::strided(a, type_a, lda),
                                emu::lib::strided(b, type_b, ldb), beta, emu::lib::strided(c, type_c, ldc), 1,
                                emu::lib::scale_type(compute));
}
inline cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,
                                   int k, const void* alpha, const void* a, cudaDataType type_a, int lda, const void* b,
                                   cudaDataType type_b, int ldb, const void* beta, void* c, cudaDataType type_c,
                                   int ldc, cudaDataType compute, cublasGemmAlgo_t algorithm) {
  return cublasGemmEx(handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc,
                      emu::lib::compute_type(compute), algorithm);
}

inline cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                                                 int m, int n, int k, const void* alpha, const void* a,
                                                 cudaDataType type_a, int lda, long long stride_a, const void* b,
                                                 cudaDataType type_b, int ldb, long long stride_b, const void* beta,
                                                 void* c, cudaDataType type_c, int ldc, long long stride_c, int batches,
                                                 cublasComputeType_t compute, cublasGemmAlgo_t) {
  return emu::lib::gemm_batches("cublasGemmStridedBatchedEx", handle, op_a, op_b, m, n, k, alpha,
                                emu::lib::strided(a, type_a, lda, stride_a),
                                emu::lib::strided(b, type_b, ldb, stride_b), beta,
                                emu::lib::strided(c, type_c, ldc, stride_c), batches, emu::lib::scale_type(compute));
}
inline cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                                                 int m, int n, int k, const void* alpha, const void* a,
                                                 cudaDataType type_a, int lda, long long stride_a, const void* b,
                                                 cudaDataType type_b, int ldb, long long stride_b, const void* beta,
                                                 void* c, cudaDataType type_c, int ldc, long long stride_c, int batches,
                                                 cudaDataType compute, cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx(handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, stride_a, b, type_b, ldb,
                                    stride_b, beta, c, type_c, ldc, stride_c, batches, emu::lib::compute_type(compute),
                                    algorithm);
}

// Matrix and vector functions for float and double. EMU_CUBLAS_BODY is the body of a function: name, handle check, and
// the computation as a kernel.

#define EMU_CUBLAS_BODY(Name, ...) return emu::lib::vector_call(Name, handle, [=] { __VA_ARGS__; })

#define EMU_CUBLAS_VECTORS(Letter, T)                                                                                  \
  inline cublasStatus_t cublas##Letter##gemv(cublasHandle_t handle, cublasOperation_t op, int m, int n,                \
                                             const T* alpha, const T* a, int lda, const T* x, int step_x,              \
                                             const T* beta, T* y, int step_y) {                                        \
    if (m < 0 || n < 0 || lda < (m > 1 ? m : 1)) return CUBLAS_STATUS_INVALID_VALUE;                                   \
    if (step_x == 0 || step_y == 0) return CUBLAS_STATUS_INVALID_VALUE;                                                \
    EMU_CUBLAS_BODY("cublas" #Letter "gemv",                                                                           \
                    emu::lib::gemv(op != CUBLAS_OP_N, m, n, *alpha, a, lda, x, step_x, *beta, y, step_y));             \
  }                                                                                                                    \
  inline cublasStatus_t cublas##Letter##ger(cublasHandle_t handle, int m, int n, const T* alpha, const T* x,           \
                                            int step_x, const T* y, int step_y, T* a, int lda) {                       \
    if (m < 0 || n < 0 || lda < (m > 1 ? m : 1)) return CUBLAS_STATUS_INVALID_VALUE;                                   \
    if (step_x == 0 || step_y == 0) return CUBLAS_STATUS_INVALID_VALUE;                                                \
    EMU_CUBLAS_BODY("cublas" #Letter "ger", emu::lib::ger(m, n, *alpha, x, step_x, y, step_y, a, lda));                \
  }                                                                                                                    \
  inline cublasStatus_t cublas##Letter##geam(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,    \
                                             int m, int n, const T* alpha, const T* a, int lda, const T* beta,         \
                                             const T* b, int ldb, T* c, int ldc) {                                     \
    EMU_CUBLAS_BODY("cublas" #Letter "geam", emu::lib::geam(op_a != CUBLAS_OP_N, op_b != CUBLAS_OP_N, m, n, *alpha, a, \
                                                            lda, *beta, b, ldb, c, ldc));                              \
  }                                                                                                                    \
  inline cublasStatus_t cublas##Letter##axpy(cublasHandle_t handle, int n, const T* alpha, const T* x, int step_x,     \
                                             T* y, int step_y) {                                                       \
    EMU_CUBLAS_BODY("cublas" #Letter "axpy", emu::lib::axpy(n, *alpha, x, step_x, y, step_y));                         \
  }                                                                                                                    \
  inline cublasStatus_t cublas##Letter##copy(cublasHandle_t handle, int n, const T* x, int step_x, T* y, int step_y) { \
    EMU_CUBLAS_BODY("cublas" #Letter "copy", emu::lib::copy(n, x, step_x, y, step_y));                                 \
  }                                                                                                                    \
  inline cublasStatus_t cublas##Letter##scal(cublasHandle_t handle, int n, const T* alpha, T* x, int step_x) {         \
    EMU_CUBLAS_BODY("cublas" #Letter "scal", emu::lib::scal(n, *alpha, x, step_x));                                    \
  }                                                                                                                    \
  inline cublasStatus_t cublas##Letter##dot(cublasHandle_t handle, int n, const T* x, int step_x, const T* y,          \
                                            int step_y, T* result) {                                                   \
    EMU_CUBLAS_BODY("cublas" #Letter "dot", *result = emu::lib::dot(n, x, step_x, y, step_y));                         \
  }                                                                                                                    \
  inline cublasStatus_t cublas##Letter##nrm2(cublasHandle_t handle, int n, const T* x, int step_x, T* result) {        \
    EMU_CUBLAS_BODY("cublas" #Letter "nrm2", *result = emu::lib::nrm2(n, x, step_x));                                  \
  }                                                                                                                    \
  inline cublasStatus_t cublas##Letter##asum(cublasHandle_t handle, int n, const T* x, int step_x, T* result) {        \
    EMU_CUBLAS_BODY("cublas" #Letter "asum", *result = emu::lib::asum(n, x, step_x));                                  \
  }
EMU_CUBLAS_VECTORS(S, float)
EMU_CUBLAS_VECTORS(D, double)
#undef EMU_CUBLAS_VECTORS
#undef EMU_CUBLAS_BODY

#endif  // WARPGRADE_EMU_CUBLAS_V2_H
