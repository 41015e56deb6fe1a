// Includes of PyTorch's header of the same name. The element-wise drivers are missing.
#pragma once

#include <ATen/ceil_div.h>
#include <ATen/core/TensorBase.h>
#include <ATen/cuda/Atomic.cuh>
#include <ATen/cuda/CUDAContext.h>
#include <c10/macros/Macros.h>

#include <cmath>

namespace at::cuda {

template <class T>
inline T ATenCeilDiv(T a, T b) {
  return at::ceil_div(a, b);
}

}  // namespace at::cuda
