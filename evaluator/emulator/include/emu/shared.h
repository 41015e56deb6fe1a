// Shared memory: one array of it ends at a page that cannot be touched, and is fresh for every block.
#ifndef WARPGRADE_EMU_SHARED_H
#define WARPGRADE_EMU_SHARED_H

#include <cstddef>

#include "emu/error.h"

namespace emu {

// Storage of the current block under a key: the same for all its threads, poisoned when the first of them asks.
// Library headers that need a hidden shared array take any address of their own as `unit`.
EMU_API void* shared_storage(const void* unit, int id, std::size_t bytes, std::size_t alignment);

// `extern __shared__`: as many bytes as the launch asked for.
EMU_API void* dynamic_shared_storage();
EMU_API std::size_t dynamic_shared_bytes();

// Sites are numbered within one translation unit: its own copy of this variable tells units apart.
static const char kUnit = 0;

// The rewriter's `__shared__ T x[N];`: T (&x)[N] = emu::shared<T[N]>(ID). Internal linkage, because of kUnit.
template <class T>
static inline T& shared(int id) {
  return *static_cast<T*>(shared_storage(&kUnit, id, sizeof(T), alignof(T)));
}

// The rewriter's `extern __shared__ T s[];`: T* s = emu::dynamic_shared<T>().
template <class T>
inline T* dynamic_shared() {
  return static_cast<T*>(dynamic_shared_storage());
}

}  // namespace emu

#endif  // WARPGRADE_EMU_SHARED_H
