// CUDA's runtime header, for kernels compiled as host functions by a C++ compiler.
#ifndef WARPGRADE_EMU_CUDA_RUNTIME_H
#define WARPGRADE_EMU_CUDA_RUNTIME_H

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <type_traits>

#include "cuda_runtime_api.h"
#include "emu/atomics.h"
#include "emu/context.h"
#include "emu/intrinsics.h"
#include "emu/launch.h"
#include "emu/math.h"
#include "emu/qualifiers.h"
#include "emu/shared.h"
#include "emu/sync.h"
#include "emu/warp.h"
#include "vector_functions.h"
#include "vector_types.h"

#endif  // WARPGRADE_EMU_CUDA_RUNTIME_H
