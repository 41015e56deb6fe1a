// BLAS vector functions for cublas_v2.h: `n` elements, `step` apart; matrices are column-major with columns `leading`
// apart. Sums are accumulated in double, as in emu_lib/blas.h.
#ifndef WARPGRADE_EMU_LIB_BLAS_VECTORS_H
#define WARPGRADE_EMU_LIB_BLAS_VECTORS_H

#include <cmath>
#include <cstddef>

namespace emu::lib {

// Returns element `index` of a vector; a negative step counts from the end.
template <class T>
T& at_step(T* vector, int index, int count, int step) {
  return vector[static_cast<std::ptrdiff_t>(step >= 0 ? index : index - (count - 1)) * step];
}

template <class T>
T& element(T* matrix, bool transposed, int leading, int row, int column) {
  const std::size_t major = transposed ? row : column;
  return matrix[major * leading + (transposed ? column : row)];
}

// y = alpha * op(A) * x + beta * y, where A is m x n.
template <class T>
void gemv(bool transposed, int m, int n, T alpha, const T* a, int leading, const T* x, int step_x, T beta, T* y,
          int step_y) {
  const int rows = transposed ? n : m;
  const int columns = transposed ? m : n;
  for (int row = 0; row < rows; ++row) {
    double sum = 0;
    for (int column = 0; column < columns; ++column) {
      sum += static_cast<double>(element(a, transposed, leading, row, column)) * at_step(x, column, columns, step_x);
    }
    T& out = at_step(y, row, rows, step_y);
    out = static_cast<T>(alpha * sum + (beta != 0 ? static_cast<double>(beta) * out : 0.0));
  }
}

// A += alpha * x * transposed(y), where A is m x n.
template <class T>
void ger(int m, int n, T alpha, const T* x, int step_x, const T* y, int step_y, T* a, int leading) {
  for (int column = 0; column < n; ++column) {
    const T factor = alpha * at_step(y, column, n, step_y);
    for (int row = 0; row < m; ++row) element(a, false, leading, row, column) += at_step(x, row, m, step_x) * factor;
  }
}

// C = alpha * op(A) + beta * op(B), all m x n. A matrix with factor 0 is not read.
template <class T>
void geam(bool a_transposed, bool b_transposed, int m, int n, T alpha, const T* a, int a_leading, T beta, const T* b,
          int b_leading, T* c, int c_leading) {
  for (int column = 0; column < n; ++column) {
    for (int row = 0; row < m; ++row) {
      const T left = alpha != 0 ? alpha * element(a, a_transposed, a_leading, row, column) : T(0);
      const T right = beta != 0 ? beta * element(b, b_transposed, b_leading, row, column) : T(0);
      element(c, false, c_leading, row, column) = left + right;
    }
  }
}

template <class T>
void axpy(int n, T alpha, const T* x, int step_x, T* y, int step_y) {
  for (int i = 0; i < n; ++i) at_step(y, i, n, step_y) += alpha * at_step(x, i, n, step_x);
}

template <class T>
void copy(int n, const T* x, int step_x, T* y, int step_y) {
  for (int i = 0; i < n; ++i) at_step(y, i, n, step_y) = at_step(x, i, n, step_x);
}

template <class T>
void scal(int n, T alpha, T* x, int step_x) {
  for (int i = 0; i < n; ++i) at_step(x, i, n, step_x) *= alpha;
}

template <class T>
T dot(int n, const T* x, int step_x, const T* y, int step_y) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += static_cast<double>(at_step(x, i, n, step_x)) * at_step(y, i, n, step_y);
  return static_cast<T>(sum);
}

template <class T>
T nrm2(int n, const T* x, int step_x) {
  double sum = 0;
  for (int i = 0; i < n; ++i) {
    const double value = at_step(x, i, n, step_x);
    sum += value * value;
  }
  return static_cast<T>(std::sqrt(sum));
}

template <class T>
T asum(int n, const T* x, int step_x) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += std::fabs(static_cast<double>(at_step(x, i, n, step_x)));
  return static_cast<T>(sum);
}

}  // namespace emu::lib

#endif  // WARPGRADE_EMU_LIB_BLAS_VECTORS_H
