// CUDA header contained in cuda_runtime.h.
#ifndef WARPGRADE_EMU_DEVICE_FUNCTIONS_H
#define WARPGRADE_EMU_DEVICE_FUNCTIONS_H

#include "cuda_runtime.h"

#endif  // WARPGRADE_EMU_DEVICE_FUNCTIONS_H
