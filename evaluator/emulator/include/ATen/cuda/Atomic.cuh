// PyTorch's gpuAtomic... functions, for all types of at most one atomic word.
#pragma once

#include <ATen/NumericUtils.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/complex.h>
#include <cuda_runtime.h>

#include "emu/atomics.h"

#define EMU_GPU_ATOMIC(Name, Expression)                                            \
  template <class T>                                                                \
  inline T gpuAtomic##Name(T* address, emu::Operand<T> value) {                     \
    return emu::atomic_update(address, [value](T old) -> T { return Expression; }); \
  }
EMU_GPU_ATOMIC(Add, static_cast<T>(old + value))
EMU_GPU_ATOMIC(Mul, static_cast<T>(old* value))
// NaN propagates, as in PyTorch.
EMU_GPU_ATOMIC(Max, at::_isnan(old) || !(old < value || at::_isnan(value)) ? old : value)
EMU_GPU_ATOMIC(Min, at::_isnan(old) || !(value < old || at::_isnan(value)) ? old : value)
#undef EMU_GPU_ATOMIC

// Atomic per part. The pair is not atomic, neither on the GPU nor here.
template <class T>
inline void gpuAtomicAdd(c10::complex<T>* address, c10::complex<T> value) {
  T* parts = reinterpret_cast<T*>(address);
  gpuAtomicAdd(&parts[0], value.real());
  gpuAtomicAdd(&parts[1], value.imag());
}

template <class T>
inline void gpuAtomicAddNoReturn(T* address, emu::Operand<T> value) {
  gpuAtomicAdd(address, value);
}
