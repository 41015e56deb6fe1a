// c10::cuda::compat: the host's math functions for float and double.
#pragma once

#include <cmath>

namespace c10::cuda::compat {

using std::abs;
using std::ceil;
using std::copysign;
using std::exp;
using std::floor;
using std::log;
using std::log1p;
using std::pow;
using std::sqrt;
using std::tan;
using std::tanh;

// A number wins over NaN, as in CUDA's fmax and fmin.
inline float max(float x, float y) { return std::fmax(x, y); }
inline double max(double x, double y) { return std::fmax(x, y); }
inline float min(float x, float y) { return std::fmin(x, y); }
inline double min(double x, double y) { return std::fmin(x, y); }

inline void sincos(float x, float* sine, float* cosine) {
  *sine = std::sin(x);
  *cosine = std::cos(x);
}
inline void sincos(double x, double* sine, double* cosine) {
  *sine = std::sin(x);
  *cosine = std::cos(x);
}
inline float rsqrt(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float normcdf(float x) { return 0.5f * std::erfc(x * -0.70710678f); }
inline double normcdf(double x) { return 0.5 * std::erfc(x * -0.70710678118654752440); }

}  // namespace c10::cuda::compat
