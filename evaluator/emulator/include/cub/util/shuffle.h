// cub's shuffles of arbitrary types within logical warps.
#ifndef WARPGRADE_EMU_CUB_SHUFFLE_H
#define WARPGRADE_EMU_CUB_SHUFFLE_H

#include "cub/util/common.h"

namespace cub {

// Returns the value `offset` lanes above; the own value beyond `last_thread` (a lane of the logical warp).
template <int LogicalWarpThreads, class T>
EMU_INLINE T ShuffleDown(T input, int offset, int last_thread, unsigned member_mask) {
  const unsigned first = detail::logical_warp_first<LogicalWarpThreads>();
  const unsigned lane = emu::lane();
  const unsigned source = lane + offset <= first + last_thread ? lane + offset : lane;
  return emu::exchange("cub::ShuffleDown", member_mask, input,
                       [source](const emu::Peers<T>& peers) { return peers[source]; });
}

// Returns the value `offset` lanes below; the own value below `first_thread`.
template <int LogicalWarpThreads, class T>
EMU_INLINE T ShuffleUp(T input, int offset, int first_thread, unsigned member_mask) {
  const int first = static_cast<int>(detail::logical_warp_first<LogicalWarpThreads>());
  const int lane = static_cast<int>(emu::lane());
  const int source = lane - offset >= first + first_thread ? lane - offset : lane;
  return emu::exchange("cub::ShuffleUp", member_mask, input,
                       [source](const emu::Peers<T>& peers) { return peers[source]; });
}

template <int LogicalWarpThreads, class T>
EMU_INLINE T ShuffleIndex(T input, int source_lane, unsigned member_mask) {
  const unsigned source = detail::logical_warp_first<LogicalWarpThreads>() + source_lane % LogicalWarpThreads;
  return emu::exchange("cub::ShuffleIndex", member_mask, input,
                       [source](const emu::Peers<T>& peers) { return peers[source]; });
}

}  // namespace cub

#endif  // WARPGRADE_EMU_CUB_SHUFFLE_H
