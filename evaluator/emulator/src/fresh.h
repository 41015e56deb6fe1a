// Contents of fresh memory: tensors, cudaMalloc and shared arrays.
#ifndef WARPGRADE_EMU_FRESH_H
#define WARPGRADE_EMU_FRESH_H

#include <cstddef>
#include <cstdint>

namespace emu {

// A kernel that reads uninitialized memory may compute a correct result by chance: fmaxf() ignores NaN, a minimum
// ignores large numbers, a maximum negative ones. Several fills are therefore used in turn.
enum class Fill {
  kNan = 0,       // NaN, or -1
  kLarge = 1,     // finite and large as half, bfloat16, float, double and integer
  kNegative = 2,  // the same with negative sign
  kOrdinary = 3,  // either sign, typical activations: 0.5 to 2 as float
};

// Sets the fill of all further fresh memory.
void set_fill(Fill fill, std::uint64_t seed);

void fill_fresh(void* data, std::size_t bytes);

}  // namespace emu

#endif  // WARPGRADE_EMU_FRESH_H
