// make_float4 and similar functions.
#ifndef WARPGRADE_EMU_VECTOR_FUNCTIONS_H
#define WARPGRADE_EMU_VECTOR_FUNCTIONS_H

#include "vector_types.h"

#define WARPGRADE_EMU_MAKE(NAME, T)                                             \
  constexpr NAME##1 make_##NAME##1(T x) { return NAME##1 {x}; }                 \
  constexpr NAME##2 make_##NAME##2(T x, T y) { return NAME##2 {x, y}; }         \
  constexpr NAME##3 make_##NAME##3(T x, T y, T z) { return NAME##3 {x, y, z}; } \
  constexpr NAME##4 make_##NAME##4(T x, T y, T z, T w) { return NAME##4 {x, y, z, w}; }

WARPGRADE_EMU_MAKE(char, signed char)
WARPGRADE_EMU_MAKE(uchar, unsigned char)
WARPGRADE_EMU_MAKE(short, short)
WARPGRADE_EMU_MAKE(ushort, unsigned short)
WARPGRADE_EMU_MAKE(int, int)
WARPGRADE_EMU_MAKE(uint, unsigned int)
WARPGRADE_EMU_MAKE(long, long int)
WARPGRADE_EMU_MAKE(ulong, unsigned long int)
WARPGRADE_EMU_MAKE(longlong, long long int)
WARPGRADE_EMU_MAKE(ulonglong, unsigned long long int)
WARPGRADE_EMU_MAKE(float, float)
WARPGRADE_EMU_MAKE(double, double)

#undef WARPGRADE_EMU_MAKE

#endif  // WARPGRADE_EMU_VECTOR_FUNCTIONS_H
