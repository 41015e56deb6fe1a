// CUDA's separate header for Philox.
#ifndef WARPGRADE_EMU_CURAND_PHILOX4X32_X_H
#define WARPGRADE_EMU_CURAND_PHILOX4X32_X_H

#include <curand_kernel.h>

#endif  // WARPGRADE_EMU_CURAND_PHILOX4X32_X_H
