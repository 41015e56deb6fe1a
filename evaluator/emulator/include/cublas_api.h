// What cublas_v2.h is made of in CUDA.
#ifndef WARPGRADE_EMU_CUBLAS_API_H
#define WARPGRADE_EMU_CUBLAS_API_H

#include <cublas_v2.h>

#endif  // WARPGRADE_EMU_CUBLAS_API_H
