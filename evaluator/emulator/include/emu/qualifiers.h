// CUDA's qualifiers, which mean nothing here. `__shared__` is missing on purpose: the rewriter replaces it, and where
// it overlooked one, an error of the compiler is better than a private variable for each thread.
#ifndef WARPGRADE_EMU_QUALIFIERS_H
#define WARPGRADE_EMU_QUALIFIERS_H

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
// Empty as well: the rewriter has the kernel's body ask for the bound.
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __forceinline__ inline __attribute__((always_inline))
// Empty, since the standard library writes __attribute__((__noinline__)).
#define __noinline__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_assume(condition) ((void)0)
#define __nv_pure__

#endif  // WARPGRADE_EMU_QUALIFIERS_H
