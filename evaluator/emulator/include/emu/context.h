// Who the running thread is: CUDA's built-in variables, and what library headers (cooperative groups, cub) ask for.
#ifndef WARPGRADE_EMU_CONTEXT_H
#define WARPGRADE_EMU_CONTEXT_H

#include <cstddef>

#include "emu/error.h"
#include "vector_types.h"

// Real variables and not macros: host code likes to name its own `dim3 blockDim(16, 16)`, which must shadow them.
// `__thread` and not `thread_local`: no initialisation wrapper is called at each use. The scheduler writes
// threadIdx at every switch of threads, so that it is right again after each barrier. The initial-exec model makes
// each use one instruction instead of a call, which elementwise kernels would spend most of their time in; its price
// is that these few bytes must fit into what the C library sets aside for libraries that are loaded late.
#define EMU_THREAD_LOCAL EMU_API __thread __attribute__((tls_model("initial-exec")))
extern EMU_THREAD_LOCAL uint3 threadIdx;
// Constant while a kernel runs, as in CUDA; so no store of a kernel makes the compiler read them again. The engine,
// which is compiled apart, sets them for each block.
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

// True in a kernel, false in host code.
EMU_API bool in_kernel();

// Threads in the current block.
inline unsigned block_threads() { return blockDim.x * blockDim.y * blockDim.z; }

// The thread's linear index in its block, x fastest: warps are made of 32 consecutive ranks.
inline unsigned thread_rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }

// The block's linear index in the grid, x fastest.
inline unsigned long long block_rank() {
  return blockIdx.x + static_cast<unsigned long long>(gridDim.x) *
                          (blockIdx.y + static_cast<unsigned long long>(gridDim.y) * blockIdx.z);
}

inline unsigned lane() { return thread_rank() % warpSize; }
inline unsigned warp_index() { return thread_rank() / warpSize; }

// Lanes of the current warp that exist and have not returned from the kernel.
EMU_API unsigned live_lanes();

// One of the 32 bits, and all bits below it: %lanemask_eq and %lanemask_lt.
inline unsigned lane_bit() { return 1u << lane(); }
inline unsigned lanes_below() { return lane_bit() - 1u; }

}  // namespace emu

#endif  // WARPGRADE_EMU_CONTEXT_H
