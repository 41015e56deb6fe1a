// What fresh memory holds: tensors, cudaMalloc and shared arrays alike.
#ifndef WARPGRADE_EMU_FRESH_H
#define WARPGRADE_EMU_FRESH_H

#include <cstddef>
#include <cstdint>

namespace emu {

// A kernel that reads memory which it has not written may be right by chance: fmaxf() passes over a NaN, a minimum over
// large numbers, a maximum over negative ones. So no fill is used alone.
enum class Fill {
  kNan = 0,       // NaN, or -1
  kLarge = 1,     // finite and huge as a half, a bfloat16, a float and a double alike; large as an integer
  kNegative = 2,  // the same, negative
  kOrdinary = 3,  // of either sign, and as large as an activation: 0.5 to 2 as a float
};

// Sets what fresh memory is filled with from now on.
void set_fill(Fill fill, std::uint64_t seed);

void fill_fresh(void* data, std::size_t bytes);

}  // namespace emu

#endif  // WARPGRADE_EMU_FRESH_H
