// Profiler control functions without effect: no profiler exists.
#ifndef WARPGRADE_EMU_CUDA_PROFILER_API_H
#define WARPGRADE_EMU_CUDA_PROFILER_API_H

#include <driver_types.h>

inline cudaError_t cudaProfilerStart() { return cudaSuccess; }
inline cudaError_t cudaProfilerStop() { return cudaSuccess; }

#endif  // WARPGRADE_EMU_CUDA_PROFILER_API_H
