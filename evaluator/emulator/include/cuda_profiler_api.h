// Switches of a profiler, of which there is none.
#ifndef WARPGRADE_EMU_CUDA_PROFILER_API_H
#define WARPGRADE_EMU_CUDA_PROFILER_API_H

#include <driver_types.h>

inline cudaError_t cudaProfilerStart() { return cudaSuccess; }
inline cudaError_t cudaProfilerStop() { return cudaSuccess; }

#endif  // WARPGRADE_EMU_CUDA_PROFILER_API_H
