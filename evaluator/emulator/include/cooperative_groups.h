// CUDA's cooperative groups: block, warp tiles, and coalesced lanes.
//
// A group of lanes is represented by a mask, so every collective operation is one `emu::exchange` over the mask. Lanes
// have numbers in the warp (0 to 31) and ranks in their group; the public interface uses ranks.
//
// Intentionally missing, so that submissions with such uses do not compile: synchronization of grids and clusters,
// memcpy_async, and tiles of more than one warp.
#ifndef WARPGRADE_EMU_COOPERATIVE_GROUPS_H
#define WARPGRADE_EMU_COOPERATIVE_GROUPS_H

#include "emu/context.h"
#include "emu/sync.h"
#include "emu/warp.h"

namespace cooperative_groups {

namespace details {

inline unsigned count(unsigned mask) { return __builtin_popcount(mask); }

// Returns the lane with a rank within a mask; 32, an invalid lane, beyond the end.
inline unsigned lane_of(unsigned mask, unsigned rank) {
  for (; mask != 0 && rank != 0; --rank) mask &= mask - 1;
  return mask != 0 ? __builtin_ctz(mask) : 32;
}

// Returns the rank of a lane within a mask.
inline unsigned rank_of(unsigned mask, unsigned lane) { return count(mask & ((1u << lane) - 1)); }

// Converts a mask of lanes to a mask of group ranks.
inline unsigned as_ranks(unsigned mask, unsigned lanes) {
  unsigned ranks = 0;
  for (unsigned rank = 0; mask != 0; ++rank, mask &= mask - 1) {
    ranks |= (lanes >> __builtin_ctz(mask) & 1u) << rank;
  }
  return ranks;
}

}  // namespace details

// Generic group: the whole block, or some lanes of a warp.
class thread_group {
 public:
  EMU_INLINE void sync() const {
    if (whole_block_) {
      emu::barrier("thread_group::sync");
    } else {
      emu::warp_barrier(mask_, "thread_group::sync");
    }
  }
  unsigned long long size() const { return whole_block_ ? emu::block_threads() : details::count(mask_); }
  unsigned long long num_threads() const { return size(); }
  unsigned long long thread_rank() const {
    return whole_block_ ? emu::thread_rank() : details::rank_of(mask_, emu::lane());
  }
  bool is_valid() const { return true; }

 protected:
  thread_group() : whole_block_(true), mask_(0) {}
  explicit thread_group(unsigned mask) : whole_block_(false), mask_(mask) {}

  bool whole_block_;
  unsigned mask_;

  friend thread_group tiled_partition(const thread_group& parent, unsigned size);
};

class thread_block : public thread_group {
 public:
  EMU_INLINE static void sync() { emu::barrier("thread_block::sync"); }
  static unsigned thread_rank() { return emu::thread_rank(); }
  static unsigned size() { return emu::block_threads(); }
  static unsigned num_threads() { return size(); }
  static dim3 group_index() { return dim3(blockIdx); }
  static dim3 thread_index() { return dim3(threadIdx); }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }

  // Split barrier. Early arrival has no benefit here, so `barrier_wait` performs the whole wait.
  struct arrival_token {};
  static arrival_token barrier_arrive() { return {}; }
  EMU_INLINE static void barrier_wait(arrival_token&&) { emu::barrier("thread_block::barrier_wait"); }

 private:
  thread_block() {}  // User-provided: C++17 would treat the class as an aggregate with a defaulted constructor.
  friend thread_block this_thread_block();
};

inline thread_block this_thread_block() { return {}; }

// Grid with shape queries. Synchronization is impossible: blocks run sequentially.
class grid_group {
 public:
  static bool is_valid() { return true; }
  static unsigned long long num_blocks() { return static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z; }
  static unsigned long long block_rank() { return emu::block_rank(); }
  static unsigned long long num_threads() { return num_blocks() * emu::block_threads(); }
  static unsigned long long size() { return num_threads(); }
  static unsigned long long thread_rank() { return block_rank() * emu::block_threads() + emu::thread_rank(); }
  static dim3 group_dim() { return gridDim; }
  static dim3 dim_blocks() { return gridDim; }
  static dim3 block_index() { return dim3(blockIdx); }
};

inline grid_group this_grid() { return {}; }

namespace details {

// Common base of tiles and coalesced groups: collective operations over the lanes of a mask. A shuffle from outside the
// group returns the lane's own value, as in CUDA.
class lane_group : public thread_group {
 public:
  EMU_INLINE void sync() const { emu::warp_barrier(mask_, "cooperative group sync"); }
  unsigned size() const { return count(mask_); }
  unsigned num_threads() const { return size(); }
  unsigned thread_rank() const { return rank_of(mask_, emu::lane()); }

  template <class T>
  EMU_INLINE T shfl(T value, int rank) const {
    return from_rank("shfl", value, static_cast<unsigned>(rank) % size());
  }
  template <class T>
  EMU_INLINE T shfl_up(T value, int delta) const {
    const int rank = static_cast<int>(thread_rank()) - delta;
    return from_rank("shfl_up", value, rank < 0 ? thread_rank() : rank);
  }
  template <class T>
  EMU_INLINE T shfl_down(T value, int delta) const {
    const unsigned rank = thread_rank() + delta;
    return from_rank("shfl_down", value, rank < size() ? rank : thread_rank());
  }
  EMU_INLINE int any(int predicate) const { return ballot(predicate) != 0; }
  EMU_INLINE int all(int predicate) const { return ballot(!predicate) == 0; }
  EMU_INLINE unsigned ballot(int predicate) const {
    return collective("ballot", predicate != 0, [](const emu::Peers<bool>& peers) {
      unsigned lanes = 0;
      for (unsigned lane = 0; lane < 32; ++lane) lanes |= unsigned{peers.has(lane) && peers[lane]} << lane;
      return lanes;
    });
  }
  // Ranks with the same value.
  template <class T>
  EMU_INLINE unsigned match_any(T value) const {
    return collective("match_any", value, [](const emu::Peers<T>& peers) {
      unsigned lanes = 0;
      for (unsigned lane = 0; lane < 32; ++lane) {
        lanes |= unsigned{peers.has(lane) && peers[lane] == peers[peers.lane()]} << lane;
      }
      return lanes;
    });
  }
  // All ranks if all values are equal, else none.
  template <class T>
  EMU_INLINE unsigned match_all(T value, int& all_equal) const {
    const unsigned same = match_any(value);
    all_equal = same == as_ranks(mask_, mask_);
    return all_equal ? same : 0;
  }

  // Lanes of the group. Not part of CUDA's interface; used by the algorithms in cooperative_groups/.
  unsigned emu_mask() const { return mask_; }

 protected:
  using thread_group::thread_group;

  template <class T>
  EMU_INLINE T from_rank(const char* name, T value, unsigned rank) const {
    const unsigned source = lane_of(mask_, rank);
    return emu::exchange(name, mask_, value, [source](const emu::Peers<T>& peers) { return peers[source]; });
  }

 private:
  // Exchange with a result mask, converted from lanes to ranks.
  template <class T, class Pick>
  EMU_INLINE unsigned collective(const char* name, T value, Pick pick) const {
    return as_ranks(mask_, emu::exchange(name, mask_, value, pick));
  }
};

// Mask of the tile of `size` lanes (a power of two) that contains the current thread.
inline unsigned tile_mask(unsigned size) {
  const unsigned low = size == 32 ? emu::kFullMask : (1u << size) - 1;
  return low << (emu::lane() & ~(size - 1));
}

}  // namespace details

// Lanes of one branch of a warp, or a subset.
class coalesced_group : public details::lane_group {
 public:
  unsigned meta_group_size() const { return parts_; }
  unsigned meta_group_rank() const { return part_; }

 private:
  explicit coalesced_group(unsigned mask, unsigned part = 0, unsigned parts = 1)
      : lane_group(mask), part_(part), parts_(parts) {}
  unsigned part_;
  unsigned parts_;

  friend coalesced_group coalesced_threads();
  friend coalesced_group tiled_partition(const coalesced_group& parent, unsigned size);
  template <class Parent, class Label>
  friend coalesced_group labeled_partition(const Parent& parent, Label label);
};

EMU_INLINE coalesced_group coalesced_threads() { return coalesced_group(emu::active_mask()); }

// Tile of compile-time size, a power of two up to a warp.
template <unsigned int Size, class Parent = void>
class thread_block_tile : public details::lane_group {
  static_assert(Size >= 1 && Size <= 32 && (Size & (Size - 1)) == 0,
                "the emulator has tiles of 1, 2, 4, 8, 16 or 32 threads");

 public:
  static constexpr unsigned size() { return Size; }
  static constexpr unsigned num_threads() { return Size; }
  static unsigned thread_rank() { return emu::lane() & (Size - 1); }
  unsigned meta_group_rank() const { return part_; }
  unsigned meta_group_size() const { return parts_; }

  template <class T>
  EMU_INLINE T shfl_xor(T value, int lane_mask) const {
    const unsigned rank = thread_rank() ^ static_cast<unsigned>(lane_mask);
    return this->from_rank("shfl_xor", value, rank < Size ? rank : thread_rank());
  }

  // Conversion to a tile with unknown parent.
  operator thread_block_tile<Size, void>() const { return thread_block_tile<Size, void>(part_, parts_); }

 private:
  thread_block_tile(unsigned part, unsigned parts) : lane_group(details::tile_mask(Size)), part_(part), parts_(parts) {}
  unsigned part_;
  unsigned parts_;

  template <unsigned int, class>
  friend class thread_block_tile;
  template <unsigned int N>
  friend thread_block_tile<N, thread_block> tiled_partition(const thread_block& parent);
  template <unsigned int N, unsigned int M, class P>
  friend thread_block_tile<N, thread_block_tile<M, P>> tiled_partition(const thread_block_tile<M, P>& parent);
  friend thread_block_tile<1, void> this_thread();
};

template <unsigned int N>
thread_block_tile<N, thread_block> tiled_partition(const thread_block&) {
  return {emu::thread_rank() / N, (emu::block_threads() + N - 1) / N};
}
template <unsigned int N, unsigned int M, class P>
thread_block_tile<N, thread_block_tile<M, P>> tiled_partition(const thread_block_tile<M, P>& parent) {
  static_assert(N <= M, "a tile cannot be larger than what it is a part of");
  return {parent.thread_rank() / N, M / N};
}
template <unsigned int N>
coalesced_group tiled_partition(const coalesced_group& parent) {
  return tiled_partition(parent, N);
}
inline thread_block_tile<1, void> this_thread() { return {0, 1}; }

// Partition into groups of `size` consecutive ranks; the last group may be smaller.
inline coalesced_group tiled_partition(const coalesced_group& parent, unsigned size) {
  const unsigned part = parent.thread_rank() / size;
  unsigned mask = 0;
  for (unsigned rank = part * size; rank < (part + 1) * size && rank < parent.size(); ++rank) {
    mask |= 1u << details::lane_of(parent.emu_mask(), rank);
  }
  return coalesced_group(mask, part, (parent.size() + size - 1) / size);
}
inline thread_group tiled_partition(const thread_group& parent, unsigned size) {
  if (parent.whole_block_) return thread_group(details::tile_mask(size));
  const unsigned first = static_cast<unsigned>(parent.thread_rank()) / size * size;
  unsigned mask = 0;
  for (unsigned rank = first; rank < first + size && rank < parent.size(); ++rank) {
    mask |= 1u << details::lane_of(parent.mask_, rank);
  }
  return thread_group(mask);
}

// Partition by label; groups are numbered by their lowest lane.
template <class Parent, class Label>
EMU_INLINE coalesced_group labeled_partition(const Parent& parent, Label label) {
  struct Part {
    unsigned mask, part, parts;
  };
  const Part own = emu::exchange("labeled_partition", parent.emu_mask(), label, [](const emu::Peers<Label>& peers) {
    Part part{0, 0, 0};
    unsigned seen = 0;
    for (unsigned lane = 0; lane < 32; ++lane) {
      if (!peers.has(lane) || (seen >> lane & 1u) != 0) continue;
      unsigned mask = 0;
      for (unsigned other = lane; other < 32; ++other) {
        mask |= unsigned{peers.has(other) && peers[other] == peers[lane]} << other;
      }
      seen |= mask;
      if ((mask >> peers.lane() & 1u) != 0) {
        part.mask = mask;
        part.part = part.parts;
      }
      ++part.parts;
    }
    return part;
  });
  return coalesced_group(own.mask, own.part, own.parts);
}
template <class Parent>
EMU_INLINE coalesced_group binary_partition(const Parent& parent, bool predicate) {
  return labeled_partition(parent, predicate);
}

// Free functions equivalent to the members, for generic code.
template <class Group>
EMU_INLINE void sync(const Group& group) {
  group.sync();
}
template <class Group>
auto thread_rank(const Group& group) {
  return group.thread_rank();
}
template <class Group>
auto group_size(const Group& group) {
  return group.size();
}

}  // namespace cooperative_groups

#endif  // WARPGRADE_EMU_COOPERATIVE_GROUPS_H
