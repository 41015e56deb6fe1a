// Bit and integer intrinsics, reinterpretations, cache hints, fences and clocks.
#ifndef WARPGRADE_EMU_INTRINSICS_H
#define WARPGRADE_EMU_INTRINSICS_H

#include <stdint.h>
#include <string.h>
#include <time.h>

#include "emu/context.h"
#include "emu/error.h"
#include "vector_types.h"

namespace emu {

template <class To, class From>
inline To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "the same number of bytes");
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

}  // namespace emu

// Reinterpretations.
inline int __float_as_int(float x) { return emu::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return emu::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return emu::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return emu::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return emu::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return emu::bit_cast<double>(x); }
inline int __double2hiint(double x) { return static_cast<int>(emu::bit_cast<long long>(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(emu::bit_cast<long long>(x)); }
inline double __hiloint2double(int high, int low) {
  return emu::bit_cast<double>(static_cast<unsigned long long>(static_cast<unsigned>(high)) << 32 |
                               static_cast<unsigned>(low));
}

// Bit operations. Unlike the compiler builtins, counting zeros is defined for 0.
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
inline unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 |
         __brev(static_cast<unsigned>(x >> 32));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long bytes = static_cast<unsigned long long>(y) << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned choice = selector >> 4 * i & 0xf;
    unsigned byte = bytes >> 8 * (choice & 7) & 0xff;
    if (choice & 8) byte = byte & 0x80 ? 0xff : 0;  // replicated sign
    result |= byte << 8 * i;
  }
  return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> (shift & 31));
}

// Integers.
inline int __mulhi(int x, int y) { return static_cast<int>(static_cast<long long>(x) * y >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>(static_cast<unsigned long long>(x) * y >> 32);
}
inline long long __mul64hi(long long x, long long y) {
  return static_cast<long long>(static_cast<__int128>(x) * y >> 64);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64);
}
inline int __mul24(int x, int y) {
  // Low 24 bits, sign-extended.
  const auto low = [](int v) { return static_cast<int>(static_cast<unsigned>(v) << 8) >> 8; };
  return static_cast<int>(static_cast<unsigned>(low(x)) * static_cast<unsigned>(low(y)));
}
inline unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffffu) * (y & 0xffffffu); }
inline unsigned __sad(int x, int y, unsigned z) {
  return z + (x > y ? static_cast<unsigned>(x) - static_cast<unsigned>(y)
                    : static_cast<unsigned>(y) - static_cast<unsigned>(x));
}
inline unsigned __usad(unsigned x, unsigned y, unsigned z) { return z + (x > y ? x - y : y - x); }
inline int __hadd(int x, int y) { return static_cast<int>((static_cast<long long>(x) + y) >> 1); }
inline int __rhadd(int x, int y) { return static_cast<int>((static_cast<long long>(x) + y + 1) >> 1); }
inline unsigned __uhadd(unsigned x, unsigned y) {
  return static_cast<unsigned>((static_cast<unsigned long long>(x) + y) >> 1);
}
inline int __dp4a(int x, int y, int sum) {
  for (int i = 0; i < 4; ++i) sum += static_cast<signed char>(x >> 8 * i) * static_cast<signed char>(y >> 8 * i);
  return sum;
}
inline unsigned __dp4a(unsigned x, unsigned y, unsigned sum) {
  for (int i = 0; i < 4; ++i) sum += (x >> 8 * i & 0xff) * (y >> 8 * i & 0xff);
  return sum;
}

// Loads and stores with cache hints.
#define WARPGRADE_EMU_LOAD(NAME)    \
  template <class T>                \
  inline T NAME(const T* address) { \
    return *address;                \
  }
WARPGRADE_EMU_LOAD(__ldg)
WARPGRADE_EMU_LOAD(__ldca)
WARPGRADE_EMU_LOAD(__ldcg)
WARPGRADE_EMU_LOAD(__ldcs)
WARPGRADE_EMU_LOAD(__ldlu)
WARPGRADE_EMU_LOAD(__ldcv)
#undef WARPGRADE_EMU_LOAD

namespace emu {
template <class T>
struct Same {
  using type = T;
};
}  // namespace emu

#define WARPGRADE_EMU_STORE(NAME)                                   \
  template <class T>                                                \
  inline void NAME(T* address, typename emu::Same<T>::type value) { \
    *address = value;                                               \
  }
WARPGRADE_EMU_STORE(__stwb)
WARPGRADE_EMU_STORE(__stcg)
WARPGRADE_EMU_STORE(__stcs)
WARPGRADE_EMU_STORE(__stwt)
#undef WARPGRADE_EMU_STORE

// Fences order memory accesses between workers.
inline void __threadfence_block() { emu::fence(); }
inline void __threadfence() { emu::fence(); }
inline void __threadfence_system() { emu::fence(); }

inline long long clock64() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}
inline void __nanosleep(unsigned) {}

[[noreturn]] inline void __trap() { emu::fail("trap", "__trap()"); }
inline void __brkpt() {}

#endif  // WARPGRADE_EMU_INTRINSICS_H
