// Scheduling order of the blocks of a grid, and of the threads of a block.
#ifndef WARPGRADE_EMU_ORDER_H
#define WARPGRADE_EMU_ORDER_H

#include <cstdint>
#include <vector>

#include "vector_types.h"

namespace emu {

enum class Order { kAscending = 0, kDescending = 1, kShuffled = 2 };

// Schedule requested by the judge.
struct Schedule {
  Order order = Order::kAscending;
  std::uint64_t seed = 0;
  int workers = 1;
};

// Threads of a block in scheduling order. Threads of a warp stay together: warps are permuted, and lanes within warps.
// Any two threads run in both orders under some schedule.
struct ThreadOrder {
  struct Warp {
    unsigned number;
    unsigned first, last;  // range in `indices` and `ranks`
  };
  std::vector<uint3> indices;
  std::vector<unsigned> ranks;  // linear ranks of `indices`
  std::vector<Warp> warps;

  ThreadOrder(const dim3& block, Order order, std::uint64_t seed);
};

// Blocks of a grid in scheduling order, computed instead of stored: a grid may have 2^31 blocks. The shuffle walks
// around the grid with a step width coprime to the grid size.
class BlockOrder {
 public:
  BlockOrder(const dim3& grid, Order order, std::uint64_t seed);
  std::uint64_t count() const { return count_; }

  // Returns the linear index of the block at a turn, and of the block after a given index.
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
