// cub::WarpReduce. Only the first lane of each logical warp receives the result, as in cub.
#ifndef WARPGRADE_EMU_CUB_WARP_REDUCE_CUH
#define WARPGRADE_EMU_CUB_WARP_REDUCE_CUH

#include "cub/util/common.h"

namespace cub {

template <class T, int LogicalWarpThreads = 32, int LegacyPtxArch = 0>
class WarpReduce {
  static_assert(LogicalWarpThreads >= 1 && LogicalWarpThreads <= 32, "a logical warp has 1 to 32 threads");

 public:
  struct TempStorage {};

  explicit WarpReduce(TempStorage&) {}

  EMU_INLINE T Sum(T input) { return Reduce(input, cub::Sum()); }
  EMU_INLINE T Sum(T input, int valid_items) { return Reduce(input, cub::Sum(), valid_items); }
  template <class Op>
  EMU_INLINE T Reduce(T input, Op op) {
    return Reduce(input, op, LogicalWarpThreads);
  }

  // Only the first `valid_items` lanes contribute.
  template <class Op>
  EMU_INLINE T Reduce(T input, Op op, int valid_items) {
    const unsigned first = detail::logical_warp_first<LogicalWarpThreads>();
    const unsigned mask = detail::logical_warp_mask<LogicalWarpThreads>();
    return emu::exchange("cub::WarpReduce", mask, input, [=](const emu::Peers<T>& peers) -> T {
      if (peers.lane() != first) return detail::undefined(peers[peers.lane()]);
      // Tree of cub's shuffles: each step combines a lane with the lane `distance` above.
      const auto tree = [&](const auto& self, int lane, int distance) -> T {
        if (distance == 0) return peers[first + lane];
        const T low = self(self, lane, distance / 2);
        if (lane + distance >= valid_items) return low;
        return op(low, self(self, lane + distance, distance / 2));
      };
      int top = 1;
      while (top < LogicalWarpThreads) top *= 2;
      return tree(tree, 0, top / 2);
    });
  }
};

}  // namespace cub

#endif  // WARPGRADE_EMU_CUB_WARP_REDUCE_CUH
