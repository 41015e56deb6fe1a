// 8-bit floating-point formats: conversion from double with a single rounding, and to float without any.
//
// Constants: OCP 8-bit Floating Point Specification (OFP8) 1.0. e4m3 has no infinity and a single NaN magnitude; e5m2
// is the upper byte of IEEE binary16. Independent of CUDA's names, which cuda_fp8.h adds.
#ifndef WARPGRADE_EMU_LIB_FP8_H
#define WARPGRADE_EMU_LIB_FP8_H

#include <cmath>
#include <cstdint>

#include "emu_lib/small_float.h"

namespace emu::lib {

struct E4M3Format {
  static constexpr int kMantissaBits = 3;
  static constexpr int kExponentBias = 7;
  static constexpr unsigned kLargest = 0x7e;   // 448
  static constexpr unsigned kOverflow = 0x7f;  // NaN, in place of an infinity
};

struct E5M2Format {
  static constexpr int kMantissaBits = 2;
  static constexpr int kExponentBias = 15;
  static constexpr unsigned kLargest = 0x7b;   // 57344
  static constexpr unsigned kOverflow = 0x7c;  // infinity
};

inline constexpr std::uint8_t kFp8NanBits = 0x7f;

// Rounds to the nearest value, ties to even. Too large values become the largest value if `saturate`, else what the
// format has for an overflow. Doubles hold all floats and halves exactly, so this is a single rounding for these too.
template <class Format>
inline std::uint8_t fp8_from_double(double value, bool saturate) {
  if (std::isnan(value)) return kFp8NanBits;
  const std::uint64_t all = bit_cast<std::uint64_t>(value);
  const std::uint8_t sign = static_cast<std::uint8_t>(all >> 63 << 7);
  const std::uint8_t beyond = sign | (saturate ? Format::kLargest : Format::kOverflow);
  if (std::isinf(value)) return beyond;
  constexpr int kDoubleMantissaBits = 52;
  const int exponent = static_cast<int>(all >> kDoubleMantissaBits & 0x7ff) - 1023;
  constexpr int kSmallest = 1 - Format::kExponentBias;  // exponent of the smallest normal value
  int cut = kDoubleMantissaBits - Format::kMantissaBits;
  if (exponent < kSmallest) cut += kSmallest - exponent;
  if (cut > 54) return sign;  // below half of the smallest subnormal value
  const std::uint64_t one = std::uint64_t{1};
  const std::uint64_t digits = (all & ((one << kDoubleMantissaBits) - 1)) | one << kDoubleMantissaBits;
  const std::uint64_t rest = digits & ((one << cut) - 1);
  const std::uint64_t tie = one << (cut - 1);
  std::uint64_t kept = digits >> cut;
  if (rest > tie || (rest == tie && (kept & 1) != 0)) ++kept;
  if (exponent > Format::kExponentBias + 1) return beyond;
  // The leading digit of a normal value counts into the exponent, and so does a carry of the rounding.
  if (exponent >= kSmallest) {
    kept += static_cast<std::uint64_t>(exponent - kSmallest) << Format::kMantissaBits;
  }
  return kept > Format::kLargest ? beyond : static_cast<std::uint8_t>(sign | kept);
}

template <class Format>
inline float fp8_to_float(std::uint8_t bits);

template <>
inline float fp8_to_float<E5M2Format>(std::uint8_t bits) {
  return to_float<HalfFormat>(static_cast<std::uint16_t>(bits << 8));
}

template <>
inline float fp8_to_float<E4M3Format>(std::uint8_t bits) {
  const int magnitude = bits & 0x7f;
  if (magnitude == kFp8NanBits) return bit_cast<float>(0x7fffffffu);
  const int exponent = magnitude >> E4M3Format::kMantissaBits;
  const int digits = magnitude & 7;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(digits), -9)
                                   : std::ldexp(static_cast<float>(8 + digits), exponent - 10);
  return (bits & 0x80) != 0 ? -size : size;
}

}  // namespace emu::lib

#endif  // WARPGRADE_EMU_LIB_FP8_H
