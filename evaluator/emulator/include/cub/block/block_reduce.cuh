// cub::BlockReduce. Only thread 0 receives the result, and reuse of the storage requires a barrier, as in cub.
#ifndef WARPGRADE_EMU_CUB_BLOCK_REDUCE_CUH
#define WARPGRADE_EMU_CUB_BLOCK_REDUCE_CUH

#include "cub/warp/warp_reduce.cuh"

namespace cub {

// On a GPU the algorithms differ in speed and summation order; here all use the last algorithm.
enum BlockReduceAlgorithm {
  BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
  BLOCK_REDUCE_RAKING,
  BLOCK_REDUCE_WARP_REDUCTIONS,
};

template <class T, int BlockDimX, BlockReduceAlgorithm Algorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int BlockDimY = 1,
          int BlockDimZ = 1, int LegacyPtxArch = 0>
class BlockReduce {
  static constexpr int kThreads = BlockDimX * BlockDimY * BlockDimZ;
  static constexpr int kWarps = (kThreads + detail::kWarp - 1) / detail::kWarp;

 public:
  struct TempStorage {
    T warp_aggregates[kWarps];
  };

  BlockReduce() : storage_(detail::private_storage<BlockReduce>()) {}
  explicit BlockReduce(TempStorage& storage) : storage_(storage) {}

  EMU_INLINE T Sum(T input) { return Reduce(input, cub::Sum()); }
  EMU_INLINE T Sum(T input, int valid_items) { return Reduce(input, cub::Sum(), valid_items); }
  template <int Items>
  EMU_INLINE T Sum(T (&inputs)[Items]) {
    return Reduce(inputs, cub::Sum());
  }
  template <class Op>
  EMU_INLINE T Reduce(T input, Op op) {
    return Reduce(input, op, kThreads);
  }
  template <int Items, class Op>
  EMU_INLINE T Reduce(T (&inputs)[Items], Op op) {
    return Reduce(detail::fold_items(inputs, op), op);
  }

  // Only the first `valid_items` threads contribute.
  template <class Op>
  EMU_INLINE T Reduce(T input, Op op, int valid_items) {
    const int rank = static_cast<int>(emu::thread_rank());
    const int warp = rank / detail::kWarp;
    if (valid_items > kThreads) valid_items = kThreads;
    typename WarpReduce<T>::TempStorage none;
    const T partial = WarpReduce<T>(none).Reduce(input, op, valid_items - warp * detail::kWarp);
    if (rank % detail::kWarp == 0) storage_.warp_aggregates[warp] = partial;
    emu::barrier("cub::BlockReduce");
    if (rank != 0) return detail::undefined(input);
    T sum = partial;
    for (int other = 1; other < kWarps && other * detail::kWarp < valid_items; ++other) {
      sum = op(sum, storage_.warp_aggregates[other]);
    }
    return sum;
  }

 private:
  TempStorage& storage_;
};

}  // namespace cub

#endif  // WARPGRADE_EMU_CUB_BLOCK_REDUCE_CUH
