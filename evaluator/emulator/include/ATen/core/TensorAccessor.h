// PyTorch's accessors, with the pointer traits that its header keeps for nvcc.

#pragma once

#include_next <ATen/core/TensorAccessor.h>

#if !defined(__CUDACC__) && !defined(__HIPCC__)
namespace at {

// Says that what an accessor points at is reached through it alone.
template <typename T>
struct RestrictPtrTraits {
  typedef T* __restrict__ PtrType;
};

}  // namespace at
#endif
