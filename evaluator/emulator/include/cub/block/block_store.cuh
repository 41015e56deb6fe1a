// cub::BlockStore and its functions: the counterpart of cub/block/block_load.cuh.
#ifndef WARPGRADE_EMU_CUB_BLOCK_STORE_CUH
#define WARPGRADE_EMU_CUB_BLOCK_STORE_CUH

#include "cub/util/common.h"

namespace cub {

template <class T, int Items, class Iterator>
void StoreDirectBlocked(int thread, Iterator to, const T (&items)[Items]) {
  for (int i = 0; i < Items; ++i) to[thread * Items + i] = items[i];
}
template <class T, int Items, class Iterator>
void StoreDirectBlocked(int thread, Iterator to, const T (&items)[Items], int valid_items) {
  for (int i = 0; i < Items; ++i) {
    if (thread * Items + i < valid_items) to[thread * Items + i] = items[i];
  }
}
template <int Threads, class T, int Items, class Iterator>
void StoreDirectStriped(int thread, Iterator to, const T (&items)[Items]) {
  for (int i = 0; i < Items; ++i) to[thread + i * Threads] = items[i];
}
template <int Threads, class T, int Items, class Iterator>
void StoreDirectStriped(int thread, Iterator to, const T (&items)[Items], int valid_items) {
  for (int i = 0; i < Items; ++i) {
    if (thread + i * Threads < valid_items) to[thread + i * Threads] = items[i];
  }
}

enum BlockStoreAlgorithm {
  BLOCK_STORE_DIRECT,
  BLOCK_STORE_STRIPED,
  BLOCK_STORE_VECTORIZE,
  BLOCK_STORE_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED,
};

template <class T, int BlockDimX, int ItemsPerThread, BlockStoreAlgorithm Algorithm = BLOCK_STORE_DIRECT,
          int BlockDimY = 1, int BlockDimZ = 1, int LegacyPtxArch = 0>
class BlockStore {
 public:
  struct TempStorage {};

  BlockStore() = default;
  explicit BlockStore(TempStorage&) {}

  // Optional argument: the number of items of the block to store.
  template <class Iterator, class... Bounds>
  void Store(Iterator to, const T (&items)[ItemsPerThread], Bounds... bounds) {
    const int thread = static_cast<int>(emu::thread_rank());
    if constexpr (Algorithm == BLOCK_STORE_STRIPED) {
      StoreDirectStriped<BlockDimX * BlockDimY * BlockDimZ>(thread, to, items, bounds...);
    } else {
      StoreDirectBlocked(thread, to, items, bounds...);
    }
  }
};

}  // namespace cub

#endif  // WARPGRADE_EMU_CUB_BLOCK_STORE_CUH
