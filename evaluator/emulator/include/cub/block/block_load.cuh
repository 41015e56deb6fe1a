// cub::BlockLoad and its functions. The algorithms differ in memory access patterns on a GPU, not in the assignment of
// items, except the striped algorithm.
#ifndef WARPGRADE_EMU_CUB_BLOCK_LOAD_CUH
#define WARPGRADE_EMU_CUB_BLOCK_LOAD_CUH

#include "cub/util/common.h"

namespace cub {

// Thread t loads items t * Items to t * Items + Items - 1.
template <class T, int Items, class Iterator>
void LoadDirectBlocked(int thread, Iterator from, T (&items)[Items]) {
  for (int i = 0; i < Items; ++i) items[i] = from[thread * Items + i];
}
template <class T, int Items, class Iterator>
void LoadDirectBlocked(int thread, Iterator from, T (&items)[Items], int valid_items) {
  for (int i = 0; i < Items; ++i) {
    if (thread * Items + i < valid_items) items[i] = from[thread * Items + i];
  }
}
template <class T, class Default, int Items, class Iterator>
void LoadDirectBlocked(int thread, Iterator from, T (&items)[Items], int valid_items, Default out_of_bounds) {
  for (int i = 0; i < Items; ++i) items[i] = static_cast<T>(out_of_bounds);
  LoadDirectBlocked(thread, from, items, valid_items);
}

// Thread t loads items t, t + Threads, t + 2 * Threads ...
template <int Threads, class T, int Items, class Iterator>
void LoadDirectStriped(int thread, Iterator from, T (&items)[Items]) {
  for (int i = 0; i < Items; ++i) items[i] = from[thread + i * Threads];
}
template <int Threads, class T, int Items, class Iterator>
void LoadDirectStriped(int thread, Iterator from, T (&items)[Items], int valid_items) {
  for (int i = 0; i < Items; ++i) {
    if (thread + i * Threads < valid_items) items[i] = from[thread + i * Threads];
  }
}
template <int Threads, class T, class Default, int Items, class Iterator>
void LoadDirectStriped(int thread, Iterator from, T (&items)[Items], int valid_items, Default out_of_bounds) {
  for (int i = 0; i < Items; ++i) items[i] = static_cast<T>(out_of_bounds);
  LoadDirectStriped<Threads>(thread, from, items, valid_items);
}

enum BlockLoadAlgorithm {
  BLOCK_LOAD_DIRECT,
  BLOCK_LOAD_STRIPED,
  BLOCK_LOAD_VECTORIZE,
  BLOCK_LOAD_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED,
};

template <class T, int BlockDimX, int ItemsPerThread, BlockLoadAlgorithm Algorithm = BLOCK_LOAD_DIRECT,
          int BlockDimY = 1, int BlockDimZ = 1, int LegacyPtxArch = 0>
class BlockLoad {
 public:
  struct TempStorage {};

  BlockLoad() = default;
  explicit BlockLoad(TempStorage&) {}

  // Optional arguments: the number of valid items in the block, and the value of the other items (default: unchanged).
  template <class Iterator, class... Bounds>
  void Load(Iterator from, T (&items)[ItemsPerThread], Bounds... bounds) {
    const int thread = static_cast<int>(emu::thread_rank());
    if constexpr (Algorithm == BLOCK_LOAD_STRIPED) {
      LoadDirectStriped<BlockDimX * BlockDimY * BlockDimZ>(thread, from, items, bounds...);
    } else {
      LoadDirectBlocked(thread, from, items, bounds...);
    }
  }
};

}  // namespace cub

#endif  // WARPGRADE_EMU_CUB_BLOCK_LOAD_CUH
