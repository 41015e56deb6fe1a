// CUDA error checks, with PyTorch's messages.
#pragma once

#include <c10/cuda/CUDAMacros.h>
#include <c10/macros/Macros.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

namespace c10 {

class CUDAError : public c10::Error {
  using Error::Error;
};

namespace cuda {

// Throws PyTorch's exception for `error`, and clears the error for the next cudaGetLastError().
inline void c10_cuda_check_implementation(int error, const char* file, const char* function, unsigned line, bool) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();
  std::string text = "CUDA error: ";
  text += cudaGetErrorString(static_cast<cudaError_t>(error));
  text +=
      "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might "
      "be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n";
  throw CUDAError(SourceLocation{function, file, line}, text);
}

}  // namespace cuda

}  // namespace c10

#define C10_CUDA_CHECK(EXPR)                                                             \
  ::c10::cuda::c10_cuda_check_implementation(static_cast<int>(EXPR), __FILE__, __func__, \
                                             static_cast<unsigned>(__LINE__), true)

#define C10_CUDA_CHECK_WARN(EXPR)                                  \
  do {                                                             \
    const cudaError_t emu_error = EXPR;                            \
    if (emu_error != cudaSuccess) {                                \
      (void)cudaGetLastError();                                    \
      TORCH_WARN("CUDA warning: ", cudaGetErrorString(emu_error)); \
    }                                                              \
  } while (0)

#define C10_CUDA_ERROR_HANDLED(EXPR) EXPR

#define C10_CUDA_IGNORE_ERROR(EXPR)                      \
  do {                                                   \
    if ((EXPR) != cudaSuccess) (void)cudaGetLastError(); \
  } while (0)

#define C10_CUDA_CLEAR_ERROR() ((void)cudaGetLastError())

#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
