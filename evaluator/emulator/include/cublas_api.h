// Part of cublas_v2.h in CUDA.
#ifndef WARPGRADE_EMU_CUBLAS_API_H
#define WARPGRADE_EMU_CUBLAS_API_H

#include <cublas_v2.h>

#endif  // WARPGRADE_EMU_CUBLAS_API_H
