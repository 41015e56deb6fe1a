// PyTorch's tensor accessors, including the pointer traits reserved for nvcc.

#pragma once

// nvcc reaches it from PyTorch's headers by way of thrust: many kernels use FLT_MAX without a header of their own.
#include <cfloat>

#include_next <ATen/core/TensorAccessor.h>

#if !defined(__CUDACC__) && !defined(__HIPCC__)
namespace at {

// Accessor data without aliases.
template <typename T>
struct RestrictPtrTraits {
  typedef T* __restrict__ PtrType;
};

}  // namespace at
#endif
