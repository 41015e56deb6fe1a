// Identity of the current thread: CUDA's built-in variables, and queries of library headers (cooperative groups, cub).
#ifndef WARPGRADE_EMU_CONTEXT_H
#define WARPGRADE_EMU_CONTEXT_H

#include <cstddef>

#include "emu/error.h"
#include "vector_types.h"

// Variables instead of macros: host code may declare its own `dim3 blockDim(16, 16)`, which must shadow the built-in.
// `__thread` instead of `thread_local`: no initialization wrapper runs at each use. The scheduler writes threadIdx at
// every thread switch, so threadIdx is valid after each barrier. The initial-exec model compiles each use to one
// instruction; the default model's call would dominate elementwise kernels. The cost of initial-exec: the variables
// must fit into the static TLS space that the C library reserves for libraries loaded at run time.
#define EMU_THREAD_LOCAL EMU_API __thread __attribute__((tls_model("initial-exec")))
extern EMU_THREAD_LOCAL uint3 threadIdx;
// Constant during a kernel, as in CUDA: a kernel's stores do not force reloads. The separately compiled runtime sets
// the variables for each block.
#ifdef WARPGRADE_EMU_RUNTIME
#define EMU_OF_BLOCK
#else
#define EMU_OF_BLOCK const
#endif
extern EMU_THREAD_LOCAL EMU_OF_BLOCK uint3 blockIdx;
extern EMU_THREAD_LOCAL EMU_OF_BLOCK dim3 blockDim;
extern EMU_THREAD_LOCAL EMU_OF_BLOCK dim3 gridDim;
#undef EMU_OF_BLOCK
static constexpr int warpSize = 32;

namespace emu {

// Returns true in a kernel, false in host code.
EMU_API bool in_kernel();

// Whether an atomic operation or a fence has run: threads may then share memory without a barrier.
extern EMU_THREAD_LOCAL bool orders_memory;

inline void fence() {
  orders_memory = true;
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

// Number of threads in the current block.
inline unsigned block_threads() { return blockDim.x * blockDim.y * blockDim.z; }

// Linear index of the thread in its block, x fastest: a warp is a group of 32 consecutive ranks.
inline unsigned thread_rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }

// Linear index of the block in the grid, x fastest.
inline unsigned long long block_rank() {
  return blockIdx.x + static_cast<unsigned long long>(gridDim.x) *
                          (blockIdx.y + static_cast<unsigned long long>(gridDim.y) * blockIdx.z);
}

inline unsigned lane() { return thread_rank() % warpSize; }
inline unsigned warp_index() { return thread_rank() / warpSize; }

// Lanes of the current warp that exist and have not returned from the kernel.
EMU_API unsigned live_lanes();

// The lane's bit, and all lower bits: %lanemask_eq and %lanemask_lt.
inline unsigned lane_bit() { return 1u << lane(); }
inline unsigned lanes_below() { return lane_bit() - 1u; }

}  // namespace emu

#endif  // WARPGRADE_EMU_CONTEXT_H
