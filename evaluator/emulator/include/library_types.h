// Element types of CUDA's libraries, as run-time values.
#ifndef WARPGRADE_EMU_LIBRARY_TYPES_H
#define WARPGRADE_EMU_LIBRARY_TYPES_H

typedef enum cudaDataType_t {
  CUDA_R_32F = 0,
  CUDA_R_64F = 1,
  CUDA_R_16F = 2,
  CUDA_R_8I = 3,
  CUDA_C_32F = 4,
  CUDA_C_64F = 5,
  CUDA_C_16F = 6,
  CUDA_R_8U = 8,
  CUDA_R_32I = 10,
  CUDA_R_16BF = 14,
  CUDA_C_16BF = 15,
  CUDA_R_64I = 24,
} cudaDataType;

#endif  // WARPGRADE_EMU_LIBRARY_TYPES_H
