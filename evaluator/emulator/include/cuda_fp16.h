// CUDA's half precision: __half, __half2 and their functions, computed on the host.
#ifndef WARPGRADE_EMU_CUDA_FP16_H
#define WARPGRADE_EMU_CUDA_FP16_H

#include <vector_types.h>

#include "emu_lib/small_float.h"

#define EMU_SCALAR __half
#define EMU_VECTOR __half2
#define EMU_SCALAR_RAW __half_raw
#define EMU_VECTOR_RAW __half2_raw
#define EMU_S half
#define EMU_V half2
#define EMU_FORMAT emu::lib::HalfFormat
#ifdef __CUDA_NO_HALF_CONVERSIONS__
#define EMU_CONVERSIONS 0
#else
#define EMU_CONVERSIONS 1
#endif
#ifdef __CUDA_NO_HALF_OPERATORS__
#define EMU_OPERATORS 0
#else
#define EMU_OPERATORS 1
#endif
#ifdef __CUDA_NO_HALF2_OPERATORS__
#define EMU_VECTOR_OPERATORS 0
#else
#define EMU_VECTOR_OPERATORS 1
#endif

#include "emu_lib/small_float_types.inc"

#include "emu_lib/small_float_conversions.inc"

#include "emu_lib/small_float_arithmetic.inc"

#include "emu_lib/small_float_undef.inc"

#ifndef CUDA_NO_HALF
using half = __half;
using half2 = __half2;
using __nv_half = __half;
using __nv_half2 = __half2;
using __nv_half_raw = __half_raw;
using __nv_half2_raw = __half2_raw;
using nv_half = __half;
using nv_half2 = __half2;
#endif

#endif  // WARPGRADE_EMU_CUDA_FP16_H
