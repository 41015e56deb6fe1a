// cooperative_groups::inclusive_scan and exclusive_scan.
#ifndef WARPGRADE_EMU_COOPERATIVE_GROUPS_SCAN_H
#define WARPGRADE_EMU_COOPERATIVE_GROUPS_SCAN_H

#include <cooperative_groups/reduce.h>

namespace cooperative_groups {

template <class Group, class T, class Op>
EMU_INLINE T inclusive_scan(const Group& group, T value, Op op) {
  const unsigned mask = group.emu_mask();
  return emu::exchange("inclusive_scan", mask, value, [=](const emu::Peers<T>& peers) -> T {
    T sum = peers[__builtin_ctz(mask)];
    for (unsigned rank = 1; rank <= details::rank_of(mask, peers.lane()); ++rank) {
      sum = op(sum, peers[details::lane_of(mask, rank)]);
    }
    return sum;
  });
}
template <class Group, class T>
EMU_INLINE T inclusive_scan(const Group& group, T value) {
  return inclusive_scan(group, value, plus<T>());
}

// Rank 0 receives a zero-initialized value.
template <class Group, class T, class Op>
EMU_INLINE T exclusive_scan(const Group& group, T value, Op op) {
  const T sum = inclusive_scan(group, value, op);
  const T before = group.shfl_up(sum, 1);
  return group.thread_rank() == 0 ? T{} : before;
}
template <class Group, class T>
EMU_INLINE T exclusive_scan(const Group& group, T value) {
  return exclusive_scan(group, value, plus<T>());
}

}  // namespace cooperative_groups

#endif  // WARPGRADE_EMU_COOPERATIVE_GROUPS_SCAN_H
