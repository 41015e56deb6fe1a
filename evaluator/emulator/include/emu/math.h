// CUDA math functions missing from the C library, fast math functions (exact here), and min and max.
#ifndef WARPGRADE_EMU_MATH_H
#define WARPGRADE_EMU_MATH_H

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include <limits>

// min and max for CUDA's type combinations: calls ambiguous under nvcc are ambiguous here.
#define WARPGRADE_EMU_MIN_MAX(RESULT, A, B)                                                                   \
  constexpr RESULT min(A a, B b) {                                                                            \
    return static_cast<RESULT>(a) < static_cast<RESULT>(b) ? static_cast<RESULT>(a) : static_cast<RESULT>(b); \
  }                                                                                                           \
  constexpr RESULT max(A a, B b) {                                                                            \
    return static_cast<RESULT>(a) < static_cast<RESULT>(b) ? static_cast<RESULT>(b) : static_cast<RESULT>(a); \
  }
WARPGRADE_EMU_MIN_MAX(int, int, int)
WARPGRADE_EMU_MIN_MAX(unsigned, unsigned, unsigned)
WARPGRADE_EMU_MIN_MAX(unsigned, int, unsigned)
WARPGRADE_EMU_MIN_MAX(unsigned, unsigned, int)
WARPGRADE_EMU_MIN_MAX(long, long, long)
WARPGRADE_EMU_MIN_MAX(unsigned long, unsigned long, unsigned long)
WARPGRADE_EMU_MIN_MAX(unsigned long, long, unsigned long)
WARPGRADE_EMU_MIN_MAX(unsigned long, unsigned long, long)
WARPGRADE_EMU_MIN_MAX(long long, long long, long long)
WARPGRADE_EMU_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
WARPGRADE_EMU_MIN_MAX(unsigned long long, long long, unsigned long long)
WARPGRADE_EMU_MIN_MAX(unsigned long long, unsigned long long, long long)
#undef WARPGRADE_EMU_MIN_MAX
// Floating-point versions ignore NaN, like fminf and fmaxf.
#define WARPGRADE_EMU_MIN_MAX(RESULT, A, B, MIN, MAX) \
  inline RESULT min(A a, B b) { return MIN(a, b); }   \
  inline RESULT max(A a, B b) { return MAX(a, b); }
WARPGRADE_EMU_MIN_MAX(float, float, float, fminf, fmaxf)
WARPGRADE_EMU_MIN_MAX(double, double, double, ::fmin, ::fmax)
WARPGRADE_EMU_MIN_MAX(double, float, double, ::fmin, ::fmax)
WARPGRADE_EMU_MIN_MAX(double, double, float, ::fmin, ::fmax)
#undef WARPGRADE_EMU_MIN_MAX
inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }
inline long long llmin(long long a, long long b) { return min(a, b); }
inline long long llmax(long long a, long long b) { return max(a, b); }

// Functions missing from the C library.
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
inline double rcbrt(double x) { return 1.0 / cbrt(x); }
inline float fdividef(float x, float y) { return x / y; }
inline float sinpif(float x) { return static_cast<float>(sin(M_PI * fmod(static_cast<double>(x), 2.0))); }
inline float cospif(float x) { return static_cast<float>(cos(M_PI * fmod(static_cast<double>(x), 2.0))); }
inline double sinpi(double x) { return sin(M_PI * fmod(x, 2.0)); }
inline double cospi(double x) { return cos(M_PI * fmod(x, 2.0)); }
inline void sincospif(float x, float* s, float* c) {
  *s = sinpif(x);
  *c = cospif(x);
}
inline double normcdf(double x) { return 0.5 * erfc(-x * M_SQRT1_2); }
inline float normcdff(float x) { return static_cast<float>(normcdf(x)); }
inline double erfcx(double x) { return x < 25 ? exp(x * x) * erfc(x) : 1.0 / (x * sqrt(M_PI)); }
inline float erfcxf(float x) { return static_cast<float>(erfcx(x)); }
inline double erfinv(double y) {
  if (!(y > -1.0 && y < 1.0)) return y == 1.0 ? INFINITY : y == -1.0 ? -INFINITY : NAN;
  // Winitzki's approximation, followed by Newton steps, which double the number of correct digits each.
  const double w = log1p(-y * y);
  const double a = 2.0 / (M_PI * 0.147) + 0.5 * w;
  double x = copysign(sqrt(sqrt(a * a - w / 0.147) - a), y);
  for (int i = 0; i < 3; ++i) x -= (erf(x) - y) / (2.0 / sqrt(M_PI) * exp(-x * x));
  return x;
}
inline float erfinvf(float y) { return static_cast<float>(erfinv(y)); }
inline double erfcinv(double y) { return erfinv(1.0 - y); }
inline float erfcinvf(float y) { return static_cast<float>(erfcinv(y)); }
inline double normcdfinv(double y) { return M_SQRT2 * erfinv(2.0 * y - 1.0); }
inline float normcdfinvf(float y) { return static_cast<float>(normcdfinv(y)); }
inline double rhypot(double x, double y) { return 1.0 / hypot(x, y); }
inline float rhypotf(float x, float y) { return 1.0f / hypotf(x, y); }
inline float norm3df(float x, float y, float z) { return hypotf(hypotf(x, y), z); }
inline float rnorm3df(float x, float y, float z) { return 1.0f / norm3df(x, y, z); }
inline float norm4df(float x, float y, float z, float w) { return hypotf(norm3df(x, y, z), w); }
inline double norm3d(double x, double y, double z) { return hypot(hypot(x, y), z); }

// Fast math functions. noexcept, because the C library declares some of the names.
inline float __expf(float x) noexcept { return expf(x); }
inline float __exp10f(float x) noexcept { return exp10f(x); }
inline float __logf(float x) noexcept { return logf(x); }
inline float __log2f(float x) noexcept { return log2f(x); }
inline float __log10f(float x) noexcept { return log10f(x); }
inline float __sinf(float x) noexcept { return sinf(x); }
inline float __cosf(float x) noexcept { return cosf(x); }
inline float __tanf(float x) noexcept { return tanf(x); }
inline float __tanhf(float x) noexcept { return tanhf(x); }
inline float __powf(float x, float y) noexcept { return powf(x, y); }
inline void __sincosf(float x, float* s, float* c) noexcept { sincosf(x, s, c); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0.0f ? fminf(x, 1.0f) : 0.0f; }  // NaN becomes 0

namespace emu {

enum class Rounding { kNearest, kZero, kUp, kDown };

// Rounds to float in the given direction. `exact` is the result in double, accurate enough for sums, products and
// quotients of floats to determine the rounding direction.
inline float round_to_float(double exact, Rounding rounding) {
  const float nearest = static_cast<float>(exact);
  if (!isfinite(exact) || nearest == exact) return nearest;
  const bool is_above = nearest > exact;
  switch (rounding) {
    case Rounding::kUp:
      return is_above ? nearest : nextafterf(nearest, INFINITY);
    case Rounding::kDown:
      return is_above ? nextafterf(nearest, -INFINITY) : nearest;
    case Rounding::kZero:
      return is_above == (exact > 0) ? nextafterf(nearest, 0.0f) : nearest;
    case Rounding::kNearest:
      break;
  }
  return nearest;
}

// Rounds to an integral value in the given direction, keeping the type.
inline double round_to_integer(double x, Rounding rounding) {
  switch (rounding) {
    case Rounding::kUp:
      return ceil(x);
    case Rounding::kDown:
      return floor(x);
    case Rounding::kZero:
      return trunc(x);
    case Rounding::kNearest:
      break;
  }
  return nearbyint(x);
}

// Converts like a GPU: out-of-range values saturate, NaN becomes 0 (32 bits) or the minimum (64 bits).
template <class Int>
inline Int to_integer(double x, Rounding rounding) {
  if (isnan(x)) return sizeof(Int) == 8 ? static_cast<Int>(1ull << 63) : Int(0);
  const double rounded = round_to_integer(x, rounding);
  if (rounded <= static_cast<double>(std::numeric_limits<Int>::min())) return std::numeric_limits<Int>::min();
  if (rounded >= static_cast<double>(std::numeric_limits<Int>::max())) return std::numeric_limits<Int>::max();
  return static_cast<Int>(rounded);
}

}  // namespace emu

// Function families with a rounding direction in the name.
#define WARPGRADE_EMU_ROUNDED(SUFFIX, ROUNDING)                                                                        \
  inline float __fadd_##SUFFIX(float x, float y) { return emu::round_to_float(double(x) + y, ROUNDING); }              \
  inline float __fsub_##SUFFIX(float x, float y) { return emu::round_to_float(double(x) - y, ROUNDING); }              \
  inline float __fmul_##SUFFIX(float x, float y) { return emu::round_to_float(double(x) * y, ROUNDING); }              \
  inline float __fdiv_##SUFFIX(float x, float y) { return emu::round_to_float(double(x) / y, ROUNDING); }              \
  inline float __frcp_##SUFFIX(float x) { return emu::round_to_float(1.0 / x, ROUNDING); }                             \
  inline float __fsqrt_##SUFFIX(float x) { return emu::round_to_float(sqrt(double(x)), ROUNDING); }                    \
  inline int __float2int_##SUFFIX(float x) { return emu::to_integer<int>(x, ROUNDING); }                               \
  inline unsigned __float2uint_##SUFFIX(float x) { return emu::to_integer<unsigned>(x, ROUNDING); }                    \
  inline long long __float2ll_##SUFFIX(float x) { return emu::to_integer<long long>(x, ROUNDING); }                    \
  inline unsigned long long __float2ull_##SUFFIX(float x) { return emu::to_integer<unsigned long long>(x, ROUNDING); } \
  inline int __double2int_##SUFFIX(double x) { return emu::to_integer<int>(x, ROUNDING); }                             \
  inline unsigned __double2uint_##SUFFIX(double x) { return emu::to_integer<unsigned>(x, ROUNDING); }                  \
  inline long long __double2ll_##SUFFIX(double x) { return emu::to_integer<long long>(x, ROUNDING); }                  \
  inline unsigned long long __double2ull_##SUFFIX(double x) {                                                          \
    return emu::to_integer<unsigned long long>(x, ROUNDING);                                                           \
  }                                                                                                                    \
  inline float __double2float_##SUFFIX(double x) { return emu::round_to_float(x, ROUNDING); }                          \
  inline float __int2float_##SUFFIX(int x) { return emu::round_to_float(x, ROUNDING); }                                \
  inline float __uint2float_##SUFFIX(unsigned x) { return emu::round_to_float(x, ROUNDING); }
WARPGRADE_EMU_ROUNDED(rz, emu::Rounding::kZero)
WARPGRADE_EMU_ROUNDED(ru, emu::Rounding::kUp)
WARPGRADE_EMU_ROUNDED(rd, emu::Rounding::kDown)
WARPGRADE_EMU_ROUNDED(rn, emu::Rounding::kNearest)
#undef WARPGRADE_EMU_ROUNDED

inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / sqrt(static_cast<double>(x))); }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __drcp_rn(double x) { return 1.0 / x; }
inline double __dsqrt_rn(double x) { return sqrt(x); }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
inline double __ll2double_rn(long long x) { return static_cast<double>(x); }
inline double __ull2double_rn(unsigned long long x) { return static_cast<double>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }

#endif  // WARPGRADE_EMU_MATH_H
