// One pass over an output instead of thirty: the comparison of evaluator/judge/compare/tensor_comparison.py, element by element.
//
// A tensor is rows of `width` elements; a warp takes a piece of a row at a time. `Value` is the output's type, `Exact`
// double or the same; everything is computed in double. `exact` counts where it is finite, `honest` elsewhere.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

using Index = long long;

constexpr int WARP = 32;
constexpr int TOGETHER = 4;  // Elements that a thread reads before it looks at any of them.

__device__ double number(float value) { return value; }
__device__ double number(double value) { return value; }
__device__ double number(__half value) { return __half2float(value); }
__device__ double number(__nv_bfloat16 value) { return __bfloat162float(value); }

// Non-negative doubles are ordered as their bits are.
__device__ void raise(double* place, double value) {
  atomicMax(reinterpret_cast<unsigned long long*>(place), static_cast<unsigned long long>(__double_as_longlong(value)));
}

__device__ double warp_sum(double value) {
  for (int offset = WARP / 2; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
  return value;
}

__device__ double warp_max(double value) {
  for (int offset = WARP / 2; offset > 0; offset /= 2) {
    value = fmax(value, __shfl_down_sync(0xffffffffu, value, offset));
  }
  return value;
}

__device__ double ratio_of(double error, double allowed) { return error == 0.0 ? 0.0 : error / allowed; }

struct Rows {
  Index rows, width, piece;
};

// Calls `visit(row, first, last)` for each of this warp's pieces.
template <typename Visit>
__device__ void for_each_piece(const Rows& shape, Visit visit) {
  const Index pieces = (shape.width + shape.piece - 1) / shape.piece;
  const Index warps = static_cast<Index>(gridDim.x) * (blockDim.x / WARP);
  for (Index task = blockIdx.x * static_cast<Index>(blockDim.x / WARP) + threadIdx.x / WARP;
       task < shape.rows * pieces; task += warps) {
    const Index row = task / pieces, start = task % pieces * shape.piece;
    const Index end = start + shape.piece < shape.width ? start + shape.piece : shape.width;
    visit(row, row * shape.width + start, row * shape.width + end);
  }
}

// Calls `look(index, got, plain, wide)` for this lane's elements from `first` to `last`, several loads ahead. Without an
// `answer` there is nothing to get.
template <typename Value, typename Exact, bool ANSWER, typename Look>
__device__ void for_each_element(const Value* __restrict__ answer, const Exact* __restrict__ exact,
                                 const Value* __restrict__ honest, Index first, Index last, Look look) {
  const int lane = threadIdx.x % WARP;
  for (Index start = first; start < last; start += WARP * TOGETHER) {
    Value gots[TOGETHER], plains[TOGETHER];
    Exact wides[TOGETHER];
#pragma unroll
    for (int step = 0; step < TOGETHER; ++step) {
      const Index index = start + step * WARP + lane;
      if (index < last) {
        if (ANSWER) gots[step] = answer[index];
        plains[step] = honest[index];
        wides[step] = exact[index];
      }
    }
#pragma unroll
    for (int step = 0; step < TOGETHER; ++step) {
      const Index index = start + step * WARP + lane;
      if (index < last) {
        const double plain = number(plains[step]), wide = number(wides[step]);
        look(index, ANSWER ? number(gots[step]) : plain, plain, isfinite(wide) ? wide : plain);
      }
    }
  }
}

// What errors are relative to: the row's size, at most the column's, at least the element's own; see overview.py.
struct Scale {
  const double *rows, *columns;  // `columns` may be null.
  int of_elements;               // Not 0 for a vector of few numbers: each has its own size.

  __device__ double at(Index row, Index column, double wide) const {
    if (of_elements) return fabs(wide);
    const double of_row = columns == nullptr ? rows[row] : fmin(rows[row], columns[column]);
    return fmax(of_row, fabs(wide));
  }
};

// The power of two at or below the element, times `unit`: half a unit in the last place.
__device__ double rounding(double wide, double unit) {
  const unsigned long long bits = static_cast<unsigned long long>(__double_as_longlong(fabs(wide)));
  return unit * __longlong_as_double(static_cast<long long>(bits & ~((1ull << 52) - 1)));
}

// Adds up the squares of each row's finite elements below `fill`, and counts them.
template <typename Value, typename Exact>
__device__ void rows(const void* exact, const void* honest, const Rows& shape, double fill, double* squares,
                     double* counts) {
  for_each_piece(shape, [&](Index row, Index first, Index last) {
    double square = 0.0, count = 0.0;
    const auto measure = [&](Index, double, double, double wide) {
      if (!isfinite(wide) || !(fabs(wide) < fill)) return;
      square += wide * wide;
      count += 1.0;
    };
    for_each_element<Value, Exact, false>(nullptr, static_cast<const Exact*>(exact), static_cast<const Value*>(honest),
                                          first, last, measure);
    square = warp_sum(square);
    count = warp_sum(count);
    if (threadIdx.x % WARP == 0) {
      atomicAdd(squares + row, square);
      atomicAdd(counts + row, count);
    }
  });
}

// Finds the honest reference's largest error beyond its rounding and `smallest`, relative to the scale.
template <typename Value, typename Exact>
__device__ void errors(const void* exact, const void* honest, const Rows& shape, const Scale& scale, double unit,
                       double smallest, double* error_of_honest) {
  for_each_piece(shape, [&](Index row, Index first, Index last) {
    double error = 0.0;
    const auto measure = [&](Index index, double, double plain, double wide) {
      const double distance = fabs(plain - wide) - (rounding(wide, unit) + smallest);
      const double relative = distance / scale.at(row, index - row * shape.width, wide);
      // Nothing by nothing is not a number, and is no error; nor does one count that nothing can be held against.
      if (isfinite(relative)) error = fmax(error, relative);
    };
    for_each_element<Value, Exact, false>(nullptr, static_cast<const Exact*>(exact), static_cast<const Value*>(honest),
                                          first, last, measure);
    error = warp_max(error);
    if (threadIdx.x % WARP == 0) raise(error_of_honest, error);
  });
}

constexpr int SCALING_THREADS = 1024;

template <typename Combine>
__device__ double block_reduced(double value, double* shared, Combine combine) {
  shared[threadIdx.x] = value;
  for (int half = SCALING_THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + half]);
  }
  __syncthreads();
  const double reduced = shared[0];
  __syncthreads();
  return reduced;
}

constexpr int LEVELS = 8;  // As in compare.py, and the factor from one to the next.
constexpr double STEP = 4.0;

// Errors of the answer are counted from `far` on, those of the honest reference from `seldom` on, beyond the rounding of the
// element (`unit`). `smallest` is allowed to every element.
struct Bounds {
  double multiple, floor, unit, far, seldom, smallest;
};

// `far` and `honest` count, for each level, the errors beyond it and not beyond the next.
struct Tally {
  double max_abs_error, ratio, honest_ratio, expected_at_first, actual_at_first;
  double far_ratio, expected_at_far, actual_at_far;
  unsigned long long mismatches, nonfinite, first, first_far;
  unsigned long long far[LEVELS], honest[LEVELS];
};

// Says which is the last level that an error is beyond, of those that begin with `level`; it is beyond that one.
__device__ int last_level(double error, double level, double own) {
  int last = 0;
  for (level *= STEP; last < LEVELS - 1 && error > level + own; level *= STEP) ++last;
  return last;
}

// One block, after `rows`: turns each row's squares into its size. A row's size is not below `small` of the whole tensor's.
extern "C" __global__ void warpgrade_scales(Index rows, Index elements, double* squares, const double* counts,
                                            double small, Tally* tally) {
  __shared__ double shared[SCALING_THREADS];
  const auto sum = [](double one, double other) { return one + other; };
  double square = 0.0, count = 0.0;
  for (Index row = threadIdx.x; row < rows; row += SCALING_THREADS) {
    square += squares[row];
    count += counts[row];
  }
  square = block_reduced(square, shared, sum);
  count = block_reduced(count, shared, sum);
  const double least = (count > 0.0 ? square / count : 0.0) * small * small;
  for (Index row = threadIdx.x; row < rows; row += SCALING_THREADS) {
    squares[row] = sqrt(fmax(squares[row] / fmax(counts[row], 1.0), least));
  }
  if (threadIdx.x == 0) {
    tally->first = elements;
    tally->first_far = elements;
  }
}

template <typename Value, typename Exact>
__device__ void compare(const void* actual, const void* exact, const void* honest, const Rows& shape,
                        const Scale& scale, const double* error_of_honest, const Bounds& bounds, Tally* tally) {
  __shared__ unsigned int far_counts[LEVELS], honest_counts[LEVELS];
  for (int level = threadIdx.x; level < LEVELS; level += blockDim.x) far_counts[level] = honest_counts[level] = 0u;
  __syncthreads();
  const double relative = fmax(bounds.multiple * *error_of_honest, bounds.floor);
  double largest = 0.0, ratio = 0.0, honest_ratio = 0.0, far_ratio = 0.0;
  unsigned long long first_far = ~0ull;
  for_each_piece(shape, [&](Index row, Index first, Index last) {
    const auto hold = [&](Index index, double got, double plain, double wide) {
      const double size = scale.at(row, index - row * shape.width, wide);
      const double own = rounding(wide, bounds.unit) + bounds.smallest;
      const double allowed = relative * size + own;
      const double error = fabs(got - wide);
      const bool comparable = isfinite(got) && isfinite(wide);
      const bool same = got == plain || (isnan(got) && isnan(plain));
      if (comparable) {
        largest = fmax(largest, error);
        ratio = fmax(ratio, ratio_of(error, allowed));
      }
      if (isfinite(plain) && isfinite(wide)) {
        const double of_honest = fabs(plain - wide);
        honest_ratio = fmax(honest_ratio, ratio_of(of_honest, allowed));
        const double seldom = bounds.seldom * size;
        if (of_honest > seldom + own) atomicAdd(honest_counts + last_level(of_honest, seldom, own), 1u);
      }
      const double far = bounds.far * size;
      if (comparable && error > far + own) {
        atomicAdd(far_counts + last_level(error, far, own), 1u);
        far_ratio = fmax(far_ratio, ratio_of(error, far + own));
        if (static_cast<unsigned long long>(index) < first_far) first_far = static_cast<unsigned long long>(index);
      }
      if ((comparable && error <= allowed) || (same && !isfinite(plain))) return;
      atomicAdd(&tally->mismatches, 1ull);
      if (!comparable) atomicAdd(&tally->nonfinite, 1ull);
      atomicMin(&tally->first, static_cast<unsigned long long>(index));
    };
    for_each_element<Value, Exact, true>(static_cast<const Value*>(actual), static_cast<const Exact*>(exact),
                                         static_cast<const Value*>(honest), first, last, hold);
  });
  largest = warp_max(largest);
  ratio = warp_max(ratio);
  honest_ratio = warp_max(honest_ratio);
  far_ratio = warp_max(far_ratio);
  if (threadIdx.x % WARP == 0) {
    raise(&tally->max_abs_error, largest);
    raise(&tally->ratio, ratio);
    raise(&tally->honest_ratio, honest_ratio);
    raise(&tally->far_ratio, far_ratio);
  }
  if (first_far != ~0ull) atomicMin(&tally->first_far, first_far);
  __syncthreads();
  for (int level = threadIdx.x; level < LEVELS; level += blockDim.x) {
    if (far_counts[level] > 0u) atomicAdd(tally->far + level, static_cast<unsigned long long>(far_counts[level]));
    if (honest_counts[level] > 0u) {
      atomicAdd(tally->honest + level, static_cast<unsigned long long>(honest_counts[level]));
    }
  }
}

template <typename Value, typename Exact>
__device__ void values_at(unsigned long long place, const void* actual, const void* exact, double* expected_at,
                          double* actual_at) {
  *expected_at = number(static_cast<const Exact*>(exact)[place]);
  *actual_at = number(static_cast<const Value*>(actual)[place]);
}

// After `compare`: what stands at the first mismatch, and at the first element that is far off.
template <typename Value, typename Exact>
__device__ void values_at_first(const void* actual, const void* exact, Tally* tally) {
  if (threadIdx.x > 0) return;
  if (tally->mismatches > 0) {
    values_at<Value, Exact>(tally->first, actual, exact, &tally->expected_at_first, &tally->actual_at_first);
  }
  if (tally->far_ratio > 0.0) {
    values_at<Value, Exact>(tally->first_far, actual, exact, &tally->expected_at_far, &tally->actual_at_far);
  }
}

// The kernels of one output type and one type of exact values, by name: warpgrade_rows_half_double, say.
#define KERNELS(NAME, VALUE, EXACT)                                                                                   \
  extern "C" __global__ void warpgrade_rows_##NAME(const void* exact, const void* honest, Rows shape, double fill,    \
                                                   double* squares, double* counts) {                                 \
    rows<VALUE, EXACT>(exact, honest, shape, fill, squares, counts);                                                  \
  }                                                                                                                   \
  extern "C" __global__ void warpgrade_errors_##NAME(const void* exact, const void* honest, Rows shape, Scale scale,  \
                                                     double unit, double smallest, double* honest_error) {            \
    errors<VALUE, EXACT>(exact, honest, shape, scale, unit, smallest, honest_error);                                  \
  }                                                                                                                   \
  extern "C" __global__ void warpgrade_compare_##NAME(const void* actual, const void* exact, const void* honest,      \
                                                      Rows shape, Scale scale, const double* honest_error,            \
                                                      Bounds bounds, Tally* tally) {                                  \
    compare<VALUE, EXACT>(actual, exact, honest, shape, scale, honest_error, bounds, tally);                          \
  }                                                                                                                   \
  extern "C" __global__ void warpgrade_first_##NAME(const void* actual, const void* exact, Tally* tally) {            \
    values_at_first<VALUE, EXACT>(actual, exact, tally);                                                              \
  }

KERNELS(float_double, float, double)
KERNELS(float_float, float, float)
KERNELS(double_double, double, double)
KERNELS(half_double, __half, double)
KERNELS(half_half, __half, __half)
KERNELS(bfloat16_double, __nv_bfloat16, double)
KERNELS(bfloat16_bfloat16, __nv_bfloat16, __nv_bfloat16)
