// CUDA's 8-bit floating-point types, computed on the host: conversions alone, as on GPUs. The formats of the MX
// specification (__nv_fp8_e8m0) are not among them.
#ifndef WARPGRADE_EMU_CUDA_FP8_H
#define WARPGRADE_EMU_CUDA_FP8_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector_types.h>

#include "emu_lib/fp8.h"

using __nv_fp8_storage_t = unsigned char;
using __nv_fp8x2_storage_t = unsigned short;
using __nv_fp8x4_storage_t = unsigned int;

enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

inline __nv_fp8_storage_t __nv_cvt_double_to_fp8(
    double value, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  return kind == __NV_E4M3 ? emu::lib::fp8_from_double<emu::lib::E4M3Format>(value, saturate == __NV_SATFINITE)
                           : emu::lib::fp8_from_double<emu::lib::E5M2Format>(value, saturate == __NV_SATFINITE);
}

inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(
    float value, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  return __nv_cvt_double_to_fp8(value, saturate, kind);
}

inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(
    __half_raw value, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  return __nv_cvt_float_to_fp8(emu::lib::to_float<emu::lib::HalfFormat>(value.x), saturate, kind);
}

inline __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(
    __nv_bfloat16_raw value, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  return __nv_cvt_float_to_fp8(emu::lib::to_float<emu::lib::BFloat16Format>(value.x), saturate, kind);
}

// The first component is in the low byte.
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(
    float2 value, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  const unsigned low = __nv_cvt_float_to_fp8(value.x, saturate, kind);
  const unsigned high = __nv_cvt_float_to_fp8(value.y, saturate, kind);
  return static_cast<__nv_fp8x2_storage_t>(high << 8 | low);
}

// Exact: halves hold all values of both formats.
inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t bits, __nv_fp8_interpretation_t kind) {
  const float value = kind == __NV_E4M3 ? emu::lib::fp8_to_float<emu::lib::E4M3Format>(bits)
                                        : emu::lib::fp8_to_float<emu::lib::E5M2Format>(bits);
  __half_raw raw;
  raw.x = emu::lib::from_float<emu::lib::HalfFormat>(value);
  return raw;
}

inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t bits, __nv_fp8_interpretation_t kind) {
  __half2_raw raw;
  raw.x = __nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(bits & 0xff), kind).x;
  raw.y = __nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(bits >> 8), kind).x;
  return raw;
}

// Constructors saturate to the largest finite value, and all are explicit, as are the conversions back.
#define EMU_FP8(Scalar, Pair, Quad, Format, kind)                                                          \
  struct Scalar {                                                                                          \
    __nv_fp8_storage_t __x;                                                                                \
    Scalar() = default;                                                                                    \
    explicit Scalar(double value) : __x(__nv_cvt_double_to_fp8(value, __NV_SATFINITE, kind)) {}            \
    explicit Scalar(float value) : Scalar(static_cast<double>(value)) {}                                   \
    explicit Scalar(__half value) : __x(__nv_cvt_halfraw_to_fp8(value, __NV_SATFINITE, kind)) {}           \
    explicit Scalar(__nv_bfloat16 value) : __x(__nv_cvt_bfloat16raw_to_fp8(value, __NV_SATFINITE, kind)) {} \
    explicit Scalar(int value) : Scalar(static_cast<double>(value)) {}                                     \
    explicit Scalar(unsigned int value) : Scalar(static_cast<double>(value)) {}                            \
    explicit operator float() const { return emu::lib::fp8_to_float<emu::lib::Format>(__x); }              \
    explicit operator double() const { return static_cast<float>(*this); }                                 \
    explicit operator __half() const { return __nv_cvt_fp8_to_halfraw(__x, kind); }                        \
    explicit operator __nv_bfloat16() const { return __float2bfloat16(static_cast<float>(*this)); }        \
  };                                                                                                       \
  struct alignas(2) Pair {                                                                                 \
    __nv_fp8x2_storage_t __x;                                                                              \
    Pair() = default;                                                                                      \
    explicit Pair(float2 value) : __x(__nv_cvt_float2_to_fp8x2(value, __NV_SATFINITE, kind)) {}            \
    explicit operator float2() const {                                                                     \
      return {emu::lib::fp8_to_float<emu::lib::Format>(static_cast<__nv_fp8_storage_t>(__x & 0xff)),       \
              emu::lib::fp8_to_float<emu::lib::Format>(static_cast<__nv_fp8_storage_t>(__x >> 8))};        \
    }                                                                                                      \
    explicit operator __half2() const { return __nv_cvt_fp8x2_to_halfraw2(__x, kind); }                    \
  };                                                                                                       \
  struct alignas(4) Quad {                                                                                 \
    __nv_fp8x4_storage_t __x;                                                                              \
    Quad() = default;                                                                                      \
    explicit Quad(float4 value)                                                                            \
        : __x(__nv_cvt_float2_to_fp8x2({value.x, value.y}, __NV_SATFINITE, kind) |                         \
              static_cast<unsigned>(__nv_cvt_float2_to_fp8x2({value.z, value.w}, __NV_SATFINITE, kind))    \
                  << 16) {}                                                                                \
    explicit operator float4() const {                                                                     \
      Pair low, high;                                                                                      \
      low.__x = static_cast<__nv_fp8x2_storage_t>(__x & 0xffff);                                           \
      high.__x = static_cast<__nv_fp8x2_storage_t>(__x >> 16);                                             \
      const float2 first = static_cast<float2>(low), second = static_cast<float2>(high);                   \
      return {first.x, first.y, second.x, second.y};                                                       \
    }                                                                                                      \
  };

EMU_FP8(__nv_fp8_e4m3, __nv_fp8x2_e4m3, __nv_fp8x4_e4m3, E4M3Format, __NV_E4M3)
EMU_FP8(__nv_fp8_e5m2, __nv_fp8x2_e5m2, __nv_fp8x4_e5m2, E5M2Format, __NV_E5M2)

#undef EMU_FP8

#endif  // WARPGRADE_EMU_CUDA_FP8_H
