// In which order the blocks of a grid, and the threads of a block, take their turns.
#ifndef WARPGRADE_EMU_ORDER_H
#define WARPGRADE_EMU_ORDER_H

#include <cstdint>
#include <vector>

#include "vector_types.h"

namespace emu {

enum class Order { kAscending = 0, kDescending = 1, kShuffled = 2 };

// A schedule as the judge asks for it.
struct Schedule {
  Order order = Order::kAscending;
  std::uint64_t seed = 0;
  int workers = 1;
};

// The threads of a block in the order of their turns. A warp's threads stay together, so that both warps and the
// lanes within one are permuted; any two threads come in both orders under some schedule.
struct ThreadOrder {
  struct Warp {
    unsigned number;
    unsigned first, last;  // range in `indices` and `ranks`
  };
  std::vector<uint3> indices;
  std::vector<unsigned> ranks;  // the linear ones of `indices`
  std::vector<Warp> warps;

  ThreadOrder(const dim3& block, Order order, std::uint64_t seed);
};

// The blocks of a grid in the order of their turns, computed and not stored: a grid may have 2^31 of them. The shuffle
// is a walk around the grid in steps that have no divisor in common with its size.
class BlockOrder {
 public:
  BlockOrder(const dim3& grid, Order order, std::uint64_t seed);
  std::uint64_t count() const { return count_; }

  // The linear index of the block whose turn it is, and of the block after the one with that index.
  std::uint64_t rank_at(std::uint64_t turn) const;
  std::uint64_t next(std::uint64_t rank) const {
    return rank >= count_ - step_ ? rank - (count_ - step_) : rank + step_;
  }

  uint3 index(std::uint64_t rank) const;

 private:
  dim3 grid_;
  std::uint64_t count_, first_, step_;  // 1 <= step_ <= count_
};

}  // namespace emu

#endif  // WARPGRADE_EMU_ORDER_H
