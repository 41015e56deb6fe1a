// What kernels take from torch's header of this name: its includes. The element-wise drivers are not here.
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
