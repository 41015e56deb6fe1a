// at::cuda: device properties and the cuBLAS handle.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

namespace at::cuda {

inline int64_t getNumGPUs() { return 1; }
inline bool is_available() { return true; }

inline cudaDeviceProp* getDeviceProperties(c10::DeviceIndex) {
  static cudaDeviceProp properties = [] {
    cudaDeviceProp answer;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&answer, 0));
    return answer;
  }();
  return &properties;
}
inline cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(0); }
inline int warp_size() { return getCurrentDeviceProperties()->warpSize; }
inline bool canDeviceAccessPeer(c10::DeviceIndex, c10::DeviceIndex) { return false; }
inline c10::Allocator* getCUDADeviceAllocator() { return c10::GetAllocator(c10::kCPU); }

inline cublasHandle_t getCurrentCUDABlasHandle(bool = true) {
  static const cublasHandle_t handle = [] {
    cublasHandle_t created = nullptr;
    cublasCreate(&created);
    return created;
  }();
  return handle;
}

}  // namespace at::cuda
