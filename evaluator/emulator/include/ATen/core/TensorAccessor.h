// PyTorch's tensor accessors, including the pointer traits reserved for nvcc.

#pragma once

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
