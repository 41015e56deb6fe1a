// CUDA's bfloat16: __nv_bfloat16, __nv_bfloat162 and their functions, computed on the host.
#ifndef WARPGRADE_EMU_CUDA_BF16_H
#define WARPGRADE_EMU_CUDA_BF16_H

#include <cuda_fp16.h>

#define EMU_SCALAR __nv_bfloat16
#define EMU_VECTOR __nv_bfloat162
#define EMU_SCALAR_RAW __nv_bfloat16_raw
#define EMU_VECTOR_RAW __nv_bfloat162_raw
#define EMU_S bfloat16
#define EMU_V bfloat162
#define EMU_FORMAT emu::lib::BFloat16Format
#ifdef __CUDA_NO_BFLOAT16_CONVERSIONS__
#define EMU_CONVERSIONS 0
#else
#define EMU_CONVERSIONS 1
#endif
#ifdef __CUDA_NO_BFLOAT16_OPERATORS__
#define EMU_OPERATORS 0
#else
#define EMU_OPERATORS 1
#endif
#ifdef __CUDA_NO_BFLOAT162_OPERATORS__
#define EMU_VECTOR_OPERATORS 0
#else
#define EMU_VECTOR_OPERATORS 1
#endif

#include "emu_lib/small_float_types.inc"

#include "emu_lib/small_float_conversions.inc"

#include "emu_lib/small_float_arithmetic.inc"

#include "emu_lib/small_float_undef.inc"

#ifndef CUDA_NO_BFLOAT16
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
#endif

#endif  // WARPGRADE_EMU_CUDA_BF16_H
