// Matrix products for cublas_v2.h: column-major, any real cuBLAS type, plain loops.
//
// Sums are accumulated in double and rounded once when stored. The result is more accurate than any summation order of
// cuBLAS, and therefore valid for all compute types.
#ifndef WARPGRADE_EMU_LIB_BLAS_H
#define WARPGRADE_EMU_LIB_BLAS_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <library_types.h>

namespace emu::lib {

inline bool is_real_type(cudaDataType type) {
  switch (type) {
    case CUDA_R_32F:
    case CUDA_R_64F:
    case CUDA_R_16F:
    case CUDA_R_16BF:
    case CUDA_R_8I:
    case CUDA_R_32I:
      return true;
    default:
      return false;
  }
}

// Returns element `index` of an array. Requires a type accepted by `is_real_type`.
inline double load_element(const void* data, cudaDataType type, std::size_t index) {
  switch (type) {
    case CUDA_R_64F:
      return static_cast<const double*>(data)[index];
    case CUDA_R_16F:
      return widen(static_cast<const __half*>(data)[index]);
    case CUDA_R_16BF:
      return widen(static_cast<const __nv_bfloat16*>(data)[index]);
    case CUDA_R_8I:
      return static_cast<const std::int8_t*>(data)[index];
    case CUDA_R_32I:
      return static_cast<const std::int32_t*>(data)[index];
    default:
      return static_cast<const float*>(data)[index];
  }
}
inline void store_element(void* data, cudaDataType type, std::size_t index, double value) {
  switch (type) {
    case CUDA_R_64F:
      static_cast<double*>(data)[index] = value;
      break;
    case CUDA_R_16F:
      static_cast<__half*>(data)[index] = narrow_double<__half>(value);
      break;
    case CUDA_R_16BF:
      static_cast<__nv_bfloat16*>(data)[index] = narrow_double<__nv_bfloat16>(value);
      break;
    case CUDA_R_8I:
      static_cast<std::int8_t*>(data)[index] = static_cast<std::int8_t>(value);
      break;
    case CUDA_R_32I:
      static_cast<std::int32_t*>(data)[index] = static_cast<std::int32_t>(value);
      break;
    default:
      static_cast<float*>(data)[index] = static_cast<float>(value);
  }
}

// Matrix argument of cuBLAS: transposed or not, columns `leading` elements apart, starting at element `offset`.
struct MatrixView {
  const void* data;
  cudaDataType type;
  bool transposed;
  int leading;
  std::size_t offset;
};

// Returns op(matrix), `rows` x `columns`, as dense columns of doubles. Reads exactly the matrix elements.
inline std::vector<double> dense_columns(const MatrixView& matrix, int rows, int columns) {
  std::vector<double> dense(static_cast<std::size_t>(rows) * columns);
  std::size_t next = 0;
  for (int column = 0; column < columns; ++column) {
    for (int row = 0; row < rows; ++row) {
      const std::size_t major = matrix.transposed ? row : column;
      const std::size_t minor = matrix.transposed ? column : row;
      dense[next++] = load_element(matrix.data, matrix.type, matrix.offset + major * matrix.leading + minor);
    }
  }
  return dense;
}

// C = alpha * op(A) * op(B) + beta * C, where op(A) is m x k and op(B) is k x n. With beta = 0, C is not read.
inline void gemm(int m, int n, int k, double alpha, const MatrixView& a, const MatrixView& b, double beta, void* c,
                 cudaDataType c_type, int c_leading, std::size_t c_offset) {
  // With alpha = 0, A and B are not read either.
  const bool multiplies = alpha != 0;
  const std::vector<double> left = multiplies ? dense_columns(a, m, k) : std::vector<double>();
  const std::vector<double> right = multiplies ? dense_columns(b, k, n) : std::vector<double>();
  std::vector<double> sums(m);
  for (int column = 0; column < n; ++column) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int inner = 0; multiplies && inner < k; ++inner) {
      const double factor = right[static_cast<std::size_t>(column) * k + inner];
      const double* const from = left.data() + static_cast<std::size_t>(inner) * m;
      for (int row = 0; row < m; ++row) sums[row] += from[row] * factor;
    }
    for (int row = 0; row < m; ++row) {
      const std::size_t place = c_offset + static_cast<std::size_t>(column) * c_leading + row;
      double value = multiplies ? alpha * sums[row] : 0.0;
      if (beta != 0) value += beta * load_element(c, c_type, place);
      store_element(c, c_type, place, value);
    }
  }
}

}  // namespace emu::lib

#endif  // WARPGRADE_EMU_LIB_BLAS_H
