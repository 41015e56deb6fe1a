// One pass over an output instead of thirty: the comparison of evaluator/judge/compare.py, element by element.
//
// A tensor is rows of `width` elements. Types: 0 float, 1 double, 2 half, 3 bfloat16; everything is computed in double.
// `exact` counts where it is finite, `honest` elsewhere.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

using Index = long long;

__device__ double element(const void* data, int type, Index index) {
  switch (type) {
    case 0: return static_cast<const float*>(data)[index];
    case 1: return static_cast<const double*>(data)[index];
    case 2: return __half2float(static_cast<const __half*>(data)[index]);
    default: return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[index]);
  }
}

__device__ double wanted(const void* exact, int exact_type, double plain, Index index) {
  const double value = element(exact, exact_type, index);
  return isfinite(value) ? value : plain;
}

// Non-negative doubles are ordered as their bits are.
__device__ void raise(double* place, double value) {
  atomicMax(reinterpret_cast<unsigned long long*>(place), static_cast<unsigned long long>(__double_as_longlong(value)));
}

__device__ double warp_sum(double value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
  return value;
}

__device__ double warp_max(double value) {
  for (int offset = 16; offset > 0; offset /= 2) value = fmax(value, __shfl_down_sync(0xffffffffu, value, offset));
  return value;
}

__device__ double ratio_of(double error, double allowed) { return error == 0.0 ? 0.0 : error / allowed; }

// Adds up the squares of each row's finite elements, and counts them. A warp takes a piece of a row at a time.
extern "C" __global__ void warpgrade_rows(const void* exact, int exact_type, const void* honest, int honest_type,
                                          Index rows, Index width, Index piece, double* squares, double* counts) {
  const Index pieces = (width + piece - 1) / piece;
  const Index warps = static_cast<Index>(gridDim.x) * (blockDim.x / 32);
  const int lane = threadIdx.x % 32;
  for (Index task = blockIdx.x * static_cast<Index>(blockDim.x / 32) + threadIdx.x / 32; task < rows * pieces;
       task += warps) {
    const Index row = task / pieces, first = task % pieces * piece;
    const Index last = first + piece < width ? first + piece : width;
    double square = 0.0, count = 0.0;
    for (Index column = first + lane; column < last; column += 32) {
      const Index index = row * width + column;
      const double wide = wanted(exact, exact_type, element(honest, honest_type, index), index);
      if (isfinite(wide)) {
        square += wide * wide;
        count += 1.0;
      }
    }
    square = warp_sum(square);
    count = warp_sum(count);
    if (lane == 0) {
      atomicAdd(squares + row, square);
      atomicAdd(counts + row, count);
    }
  }
}

// The honest reference's largest error, relative to its row's scale.
extern "C" __global__ void warpgrade_honest_error(const void* exact, int exact_type, const void* honest,
                                                  int honest_type, Index count, Index width, const double* scales,
                                                  double* largest) {
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  double mine = 0.0;
  for (Index index = blockIdx.x * static_cast<Index>(blockDim.x) + threadIdx.x; index < count; index += step) {
    const double plain = element(honest, honest_type, index);
    const double wide = wanted(exact, exact_type, plain, index);
    const double error = fabs(plain - wide) / scales[index / width];
    if (isfinite(error)) mine = fmax(mine, error);
  }
  mine = warp_max(mine);
  if (threadIdx.x % 32 == 0) raise(largest, mine);
}

struct Tally {
  double max_abs_error, ratio, honest_ratio;
  unsigned long long mismatches, nonfinite, first;
};

extern "C" __global__ void warpgrade_compare(const void* actual, int actual_type, const void* exact, int exact_type,
                                             const void* honest, int honest_type, Index count, Index width,
                                             const double* scales, const double* honest_error, double multiple,
                                             double floor, double unit, Tally* tally) {
  const double relative = fmax(multiple * *honest_error, floor);
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  double largest = 0.0, ratio = 0.0, honest_ratio = 0.0;
  for (Index index = blockIdx.x * static_cast<Index>(blockDim.x) + threadIdx.x; index < count; index += step) {
    const double got = element(actual, actual_type, index), plain = element(honest, honest_type, index);
    const double wide = wanted(exact, exact_type, plain, index);
    const double allowed = relative * scales[index / width] + unit * fabs(wide);
    const double error = fabs(got - wide);
    const bool comparable = isfinite(got) && isfinite(wide);
    const bool close = comparable && error <= allowed;
    const bool same = got == plain || (isnan(got) && isnan(plain));
    if (comparable) {
      largest = fmax(largest, error);
      ratio = fmax(ratio, ratio_of(error, allowed));
    }
    if (isfinite(plain) && isfinite(wide)) honest_ratio = fmax(honest_ratio, ratio_of(fabs(plain - wide), allowed));
    if (!(close || (same && !isfinite(plain)))) {
      atomicAdd(&tally->mismatches, 1ull);
      if (!comparable) atomicAdd(&tally->nonfinite, 1ull);
      atomicMin(&tally->first, static_cast<unsigned long long>(index));
    }
  }
  largest = warp_max(largest);
  ratio = warp_max(ratio);
  honest_ratio = warp_max(honest_ratio);
  if (threadIdx.x % 32 == 0) {
    raise(&tally->max_abs_error, largest);
    raise(&tally->ratio, ratio);
    raise(&tally->honest_ratio, honest_ratio);
  }
}
