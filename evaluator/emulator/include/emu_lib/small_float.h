// 16-bit floating-point formats: conversion from and to float and double with a single rounding.
//
// Independent of CUDA's names; cuda_fp16.h and cuda_bf16.h add the names. Rounding uses only integer arithmetic, so
// results depend neither on the processor nor on its rounding mode.
#ifndef WARPGRADE_EMU_LIB_SMALL_FLOAT_H
#define WARPGRADE_EMU_LIB_SMALL_FLOAT_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "emu/context.h"

namespace emu::lib {

// Suffixes _rn, _rz, _rd and _ru of CUDA's conversions.
enum class Rounding { kNearestEven, kTowardZero, kDown, kUp };

// IEEE binary16.
struct HalfFormat {
  static constexpr int kMantissaBits = 10;
  static constexpr int kExponentBias = 15;
};

// Upper half of an IEEE binary32.
struct BFloat16Format {
  static constexpr int kMantissaBits = 7;
  static constexpr int kExponentBias = 127;
};

// Both formats have 16 bits: the exponent is everything except sign and mantissa.
template <class Format>
inline constexpr std::uint16_t kInfinityBits = 0x7fffu & ~((1u << Format::kMantissaBits) - 1);

// NaN result of a GPU, for any NaN payload.
inline constexpr std::uint16_t kCanonicalNanBits = 0x7fff;
inline constexpr std::uint16_t kSignBit = 0x8000;

template <class To, class From>
inline To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

// Exact: floats represent all 16-bit values.
template <class Format>
inline float to_float(std::uint16_t bits) {
  constexpr int kShift = 23 - Format::kMantissaBits;
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & kSignBit) << 16;
  const std::uint32_t magnitude = bits & 0x7fffu;
  if constexpr (Format::kExponentBias == 127) {
    return bit_cast<float>(sign | magnitude << kShift);
  } else {
    constexpr std::uint32_t kRebias = (127u - Format::kExponentBias) << 23;
    if (magnitude >= kInfinityBits<Format>) {
      return bit_cast<float>(sign | 0x7f800000u | magnitude << kShift);
    }
    if (magnitude >> Format::kMantissaBits == 0) {  // Zero or subnormal: a multiple of the smallest subnormal.
      const float unit = bit_cast<float>((128u - Format::kExponentBias - Format::kMantissaBits) << 23);
      return bit_cast<float>(sign | bit_cast<std::uint32_t>(static_cast<float>(magnitude) * unit));
    }
    return bit_cast<float>(sign | ((magnitude << kShift) + kRebias));
  }
}

// Rounds `value` to the format. Too large values become infinity, or the largest finite value if the rounding direction
// points away from infinity. Subnormal results are kept, as on a GPU for both formats.
template <class Format, Rounding kRounding = Rounding::kNearestEven>
inline std::uint16_t from_float(float value) {
  const std::uint32_t all = bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = all & 0x7fffffffu;
  const bool negative = (all >> 31) != 0;
  const std::uint16_t sign = negative ? kSignBit : 0;
  constexpr std::uint32_t kInfinity = kInfinityBits<Format>;
  if (magnitude > 0x7f800000u) return kCanonicalNanBits;
  if (magnitude == 0x7f800000u) return sign | kInfinity;

  // Magnitude as an integer whose lowest `cut` bits do not fit into the format.
  constexpr std::uint32_t kRebias = (127u - Format::kExponentBias) << 23;
  std::uint32_t wide = magnitude - kRebias;
  int cut = 23 - Format::kMantissaBits;
  if constexpr (kRebias != 0) {
    const int exponent = static_cast<int>(magnitude >> 23);
    constexpr int kSmallestNormal = 128 - Format::kExponentBias;
    if (exponent < kSmallestNormal) {
      wide = (magnitude & 0x7fffffu) | (exponent == 0 ? 0u : 0x800000u);
      cut += kSmallestNormal - (exponent == 0 ? 1 : exponent);
      if (cut > 31) {  // Far below the smallest subnormal: only "not zero" matters.
        wide = wide != 0;
        cut = 31;
      }
    }
  }
  std::uint32_t kept = wide >> cut;
  const std::uint32_t rest = wide & ((1u << cut) - 1);
  const std::uint32_t tie = 1u << (cut - 1);
  constexpr bool kNearest = kRounding == Rounding::kNearestEven;
  const bool away = kNearest                       ? rest > tie || (rest == tie && (kept & 1) != 0)
                    : kRounding == Rounding::kUp   ? rest != 0 && !negative
                    : kRounding == Rounding::kDown ? rest != 0 && negative
                                                   : false;
  kept += away;
  if (kept >= kInfinity) {
    const bool to_infinity =
        kNearest || (kRounding == Rounding::kUp && !negative) || (kRounding == Rounding::kDown && negative);
    kept = to_infinity ? kInfinity : kInfinity - 1;
  }
  return sign | static_cast<std::uint16_t>(kept);
}

// Rounds to odd: the lowest kept bit records the cut-off bits. A later rounding to fewer bits then equals a single
// rounding of the exact value; two roundings to nearest would not.
inline float to_odd_float(double value) {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  if (back == value || value != value) return nearest;
  std::uint32_t bits = bit_cast<std::uint32_t>(nearest);
  if (std::fabs(back) > std::fabs(value)) --bits;
  return bit_cast<float>(bits | 1u);
}

template <class Format, Rounding kRounding = Rounding::kNearestEven>
inline std::uint16_t from_double(double value) {
  return from_float<Format, kRounding>(to_odd_float(value));
}

// Rounds an integer of any width; values beyond 53 bits pass through a double rounded to odd.
template <class Format, Rounding kRounding, class Integer>
inline std::uint16_t from_integer(Integer value) {
  const bool negative = value < 0;
  std::uint64_t magnitude = static_cast<std::uint64_t>(value);
  if (negative) magnitude = 0 - magnitude;
  if (magnitude >> 53 != 0) {
    constexpr std::uint64_t kCut = (1u << 11) - 1;
    magnitude = (magnitude & ~kCut) | ((magnitude & kCut) != 0 ? kCut + 1 : 0);
  }
  const double exact = static_cast<double>(magnitude);
  return from_double<Format, kRounding>(negative ? -exact : exact);
}

// Rounds to an integer with saturation, like the GPU's conversion. NaN becomes zero, or in 64 bits the top bit alone.
template <class Integer, Rounding kRounding>
inline Integer to_integer(float value) {
  using Limits = std::numeric_limits<Integer>;
  if (value != value) return sizeof(Integer) == 8 ? static_cast<Integer>(std::uint64_t{1} << 63) : Integer{0};
  const float whole = kRounding == Rounding::kNearestEven  ? std::nearbyint(value)
                      : kRounding == Rounding::kTowardZero ? std::trunc(value)
                      : kRounding == Rounding::kDown       ? std::floor(value)
                                                           : std::ceil(value);
  if (whole <= static_cast<float>(Limits::min())) return Limits::min();
  if (whole >= static_cast<float>(Limits::max())) return Limits::max();
  return static_cast<Integer>(whole);
}

// a * b + c, for a * b exact in double (true for 16-bit factors). The sum is rounded to odd, so the result can be
// rounded again.
inline double fused_to_odd(float a, float b, float c) {
  const double product = static_cast<double>(a) * b;
  const double sum = product + c;
  if (!std::isfinite(sum)) return sum;
  // Exact rounding error of the sum.
  const double of_product = sum - c;
  const double of_addend = sum - of_product;
  const double lost = (product - of_product) + (c - of_addend);
  std::uint64_t bits = bit_cast<std::uint64_t>(sum);
  if (lost == 0 || (bits & 1) != 0) return sum;
  // The exact value lies between `sum` and its neighbour in the direction of `lost`; select the odd neighbour.
  const bool outward = (lost > 0) == (sum > 0);
  return bit_cast<double>(outward ? bits + 1 : bits - 1);
}

}  // namespace emu::lib

#endif  // WARPGRADE_EMU_LIB_SMALL_FLOAT_H
