// CUDA qualifiers, mostly empty. `__shared__` is intentionally undefined: the rewriter replaces `__shared__`, and a
// compile error for a missed declaration is better than a private variable per thread.
#ifndef WARPGRADE_EMU_QUALIFIERS_H
#define WARPGRADE_EMU_QUALIFIERS_H

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
// Empty: the rewriter inserts a check of the bound into the kernel's body.
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __forceinline__ inline __attribute__((always_inline))
// Empty, because the standard library uses __attribute__((__noinline__)).
#define __noinline__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_assume(condition) ((void)0)
#define __nv_pure__

#endif  // WARPGRADE_EMU_QUALIFIERS_H
