// A header of CUDA that its runtime header contains.
#ifndef WARPGRADE_EMU_MATH_FUNCTIONS_H
#define WARPGRADE_EMU_MATH_FUNCTIONS_H

#include "cuda_runtime.h"

#endif  // WARPGRADE_EMU_MATH_FUNCTIONS_H
