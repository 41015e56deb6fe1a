// Barriers, shuffles, votes, matches and reductions, under CUDA's names.
#ifndef WARPGRADE_EMU_WARP_H
#define WARPGRADE_EMU_WARP_H

#include "emu/sync.h"

// Always inline, so the runtime finds the kernel's line instead of a header line.
#define EMU_INLINE inline __attribute__((always_inline))

EMU_INLINE void __syncthreads() { emu::barrier(); }
EMU_INLINE int __syncthreads_count(int predicate) { return emu::barrier_count(predicate); }
EMU_INLINE int __syncthreads_and(int predicate) { return emu::barrier_and(predicate); }
EMU_INLINE int __syncthreads_or(int predicate) { return emu::barrier_or(predicate); }
EMU_INLINE void __syncwarp(unsigned mask = emu::kFullMask) { emu::warp_barrier(mask); }
EMU_INLINE unsigned __activemask() { return emu::active_mask(); }

namespace emu {

// First and last lane of the shuffle segment, `width` lanes wide, that contains `lane`.
inline unsigned segment_first(unsigned lane, int width) { return lane & ~(static_cast<unsigned>(width) - 1); }
inline unsigned segment_last(unsigned lane, int width) { return lane | (static_cast<unsigned>(width) - 1); }

}  // namespace emu

template <class T>
EMU_INLINE T __shfl_sync(unsigned mask, T value, int source, int width = warpSize) {
  return emu::exchange("__shfl_sync", mask, value, [source, width](const emu::Peers<T>& peers) {
    return peers[emu::segment_first(peers.lane(), width) + (static_cast<unsigned>(source) & (width - 1))];
  });
}

template <class T>
EMU_INLINE T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  return emu::exchange("__shfl_up_sync", mask, value, [delta, width](const emu::Peers<T>& peers) {
    const unsigned lane = peers.lane();
    return lane - emu::segment_first(lane, width) < delta ? peers[lane] : peers[lane - delta];
  });
}

template <class T>
EMU_INLINE T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  return emu::exchange("__shfl_down_sync", mask, value, [delta, width](const emu::Peers<T>& peers) {
    const unsigned lane = peers.lane();
    return emu::segment_last(lane, width) - lane < delta ? peers[lane] : peers[lane + delta];
  });
}

template <class T>
EMU_INLINE T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize) {
  return emu::exchange("__shfl_xor_sync", mask, value, [lane_mask, width](const emu::Peers<T>& peers) {
    // Lanes of later segments are out of range, lanes of earlier segments are not.
    const unsigned source = peers.lane() ^ static_cast<unsigned>(lane_mask);
    return source > emu::segment_last(peers.lane(), width) ? peers[peers.lane()] : peers[source];
  });
}

EMU_INLINE unsigned __ballot_sync(unsigned mask, int predicate) {
  return emu::exchange("__ballot_sync", mask, predicate, [](const emu::Peers<int>& peers) {
    unsigned votes = 0;
    for (unsigned lane = 0; lane < 32; ++lane) votes |= (peers.has(lane) && peers[lane] != 0 ? 1u : 0u) << lane;
    return votes;
  });
}

EMU_INLINE int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
EMU_INLINE int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate == 0) == 0; }
EMU_INLINE int __uni_sync(unsigned mask, int predicate) {
  return emu::exchange("__uni_sync", mask, predicate, [](const emu::Peers<int>& peers) {
    const bool any = peers.fold([](int a, int b) { return a != 0 || b != 0; }) != 0;
    const bool all = peers.fold([](int a, int b) { return a != 0 && b != 0; }) != 0;
    return static_cast<int>(any == all);
  });
}

template <class T>
EMU_INLINE unsigned __match_any_sync(unsigned mask, T value) {
  return emu::exchange("__match_any_sync", mask, value, [](const emu::Peers<T>& peers) {
    unsigned same = 0;
    const T own = peers[peers.lane()];
    for (unsigned lane = 0; lane < 32; ++lane) same |= (peers.has(lane) && peers[lane] == own ? 1u : 0u) << lane;
    return same;
  });
}

template <class T>
EMU_INLINE unsigned __match_all_sync(unsigned mask, T value, int* all_equal) {
  const unsigned same = emu::exchange("__match_all_sync", mask, value, [](const emu::Peers<T>& peers) {
    const T own = peers[peers.lane()];
    for (unsigned lane = 0; lane < 32; ++lane) {
      if (peers.has(lane) && !(peers[lane] == own)) return 0u;
    }
    return peers.lanes();
  });
  *all_equal = same != 0;
  return same;
}

#define WARPGRADE_EMU_REDUCE(NAME, T, EXPRESSION)                             \
  EMU_INLINE T NAME(unsigned mask, T value) {                                 \
    return emu::exchange(#NAME, mask, value, [](const emu::Peers<T>& peers) { \
      return peers.fold([](T a, T b) -> T { return EXPRESSION; });            \
    });                                                                       \
  }

WARPGRADE_EMU_REDUCE(__reduce_add_sync, unsigned, a + b)
WARPGRADE_EMU_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
WARPGRADE_EMU_REDUCE(__reduce_max_sync, unsigned, a < b ? b : a)
WARPGRADE_EMU_REDUCE(__reduce_and_sync, unsigned, a& b)
WARPGRADE_EMU_REDUCE(__reduce_or_sync, unsigned, a | b)
WARPGRADE_EMU_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
WARPGRADE_EMU_REDUCE(__reduce_add_sync, int, static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b)))
WARPGRADE_EMU_REDUCE(__reduce_min_sync, int, a < b ? a : b)
WARPGRADE_EMU_REDUCE(__reduce_max_sync, int, a < b ? b : a)

#undef WARPGRADE_EMU_REDUCE

#endif  // WARPGRADE_EMU_WARP_H
