// Shared memory: each array ends at a guard page and holds fresh values for every block.
#ifndef WARPGRADE_EMU_SHARED_H
#define WARPGRADE_EMU_SHARED_H

#include <cstddef>

#include "emu/error.h"

namespace emu {

// Returns storage of the current block for a key, common to all threads and filled on first use. Library headers with
// hidden shared arrays pass an address of their own as `unit`.
EMU_API void* shared_storage(const void* unit, int id, std::size_t bytes, std::size_t alignment);

// `extern __shared__`: size given by the launch.
EMU_API void* dynamic_shared_storage();
EMU_API std::size_t dynamic_shared_bytes();

// Sites are numbered per translation unit. The address of the internal variable distinguishes units.
static const char kUnit = 0;

// Rewritten `__shared__ T x[N];`: T (&x)[N] = emu::shared<T[N]>(ID). Internal linkage, because of kUnit.
template <class T>
static inline T& shared(int id) {
  return *static_cast<T*>(shared_storage(&kUnit, id, sizeof(T), alignof(T)));
}

// Rewritten `extern __shared__ T s[];`: T* s = emu::dynamic_shared<T>().
template <class T>
inline T* dynamic_shared() {
  return static_cast<T*>(dynamic_shared_storage());
}

}  // namespace emu

#endif  // WARPGRADE_EMU_SHARED_H
