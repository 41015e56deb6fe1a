// cub::BlockScan. Reuse of the storage requires a barrier, as in cub.
#ifndef WARPGRADE_EMU_CUB_BLOCK_SCAN_CUH
#define WARPGRADE_EMU_CUB_BLOCK_SCAN_CUH

#include "cub/warp/warp_scan.cuh"

namespace cub {

// On a GPU the algorithms differ in speed and summation order; here all use the last algorithm.
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

template <class T, int BlockDimX, BlockScanAlgorithm Algorithm = BLOCK_SCAN_RAKING, int BlockDimY = 1,
          int BlockDimZ = 1, int LegacyPtxArch = 0>
class BlockScan {
  static constexpr int kThreads = BlockDimX * BlockDimY * BlockDimZ;
  static constexpr int kWarps = (kThreads + detail::kWarp - 1) / detail::kWarp;

 public:
  struct TempStorage {
    T warp_aggregates[kWarps];
    T block_prefix;
  };

  BlockScan() : storage_(detail::private_storage<BlockScan>()) {}
  explicit BlockScan(TempStorage& storage) : storage_(storage) {}

  // One item per thread. The third argument is an output (the block's sum without an initial value), or a functor that
  // returns the block's prefix, called by the first warp.
  EMU_INLINE void InclusiveSum(T input, T& output) { InclusiveScan(input, output, cub::Sum()); }
  template <class Third>
  EMU_INLINE void InclusiveSum(T input, T& output, Third& third) {
    InclusiveScan(input, output, cub::Sum(), third);
  }
  EMU_INLINE void ExclusiveSum(T input, T& output) { ExclusiveScan(input, output, T{}, cub::Sum()); }
  EMU_INLINE void ExclusiveSum(T input, T& output, T& aggregate) {
    ExclusiveScan(input, output, T{}, cub::Sum(), aggregate);
  }
  template <class Prefix>
  EMU_INLINE void ExclusiveSum(T input, T& output, Prefix& prefix) {
    ExclusiveScan(input, output, cub::Sum(), prefix);
  }

  template <class Op>
  EMU_INLINE void InclusiveScan(T input, T& output, Op op) {
    output = scan(input, op).inclusive;
  }
  template <class Op>
  EMU_INLINE void InclusiveScan(T input, T& output, Op op, T& aggregate) {
    const Result result = scan(input, op);
    output = result.inclusive;
    aggregate = result.aggregate;
  }
  template <class Op, class Prefix>
  EMU_INLINE void InclusiveScan(T input, T& output, Op op, Prefix& prefix) {
    const Result result = scan(input, op);
    output = op(block_prefix(result.aggregate, prefix), result.inclusive);
  }
  // Without an initial value, thread 0's output is undefined.
  template <class Op>
  EMU_INLINE void ExclusiveScan(T input, T& output, Op op) {
    output = scan(input, op).exclusive;
  }
  template <class Op>
  EMU_INLINE void ExclusiveScan(T input, T& output, T initial, Op op) {
    output = from_initial(scan(input, op), initial, op);
  }
  template <class Op>
  EMU_INLINE void ExclusiveScan(T input, T& output, T initial, Op op, T& aggregate) {
    const Result result = scan(input, op);
    output = from_initial(result, initial, op);
    aggregate = result.aggregate;
  }
  template <class Op, class Prefix, class = decltype(std::declval<Prefix&>()(std::declval<T>()))>
  EMU_INLINE void ExclusiveScan(T input, T& output, Op op, Prefix& prefix) {
    const Result result = scan(input, op);
    output = from_initial(result, block_prefix(result.aggregate, prefix), op);
  }

  // Several consecutive items per thread: the same scan over each thread's sum.
  template <int Items>
  EMU_INLINE void InclusiveSum(T (&input)[Items], T (&output)[Items]) {
    InclusiveScan(input, output, cub::Sum());
  }
  template <int Items>
  EMU_INLINE void InclusiveSum(T (&input)[Items], T (&output)[Items], T& aggregate) {
    InclusiveScan(input, output, cub::Sum(), aggregate);
  }
  template <int Items>
  EMU_INLINE void ExclusiveSum(T (&input)[Items], T (&output)[Items]) {
    ExclusiveScan(input, output, T{}, cub::Sum());
  }
  template <int Items>
  EMU_INLINE void ExclusiveSum(T (&input)[Items], T (&output)[Items], T& aggregate) {
    ExclusiveScan(input, output, T{}, cub::Sum(), aggregate);
  }
  template <int Items, class Op>
  EMU_INLINE void InclusiveScan(T (&input)[Items], T (&output)[Items], Op op) {
    T aggregate;
    InclusiveScan(input, output, op, aggregate);
  }
  template <int Items, class Op>
  EMU_INLINE void InclusiveScan(T (&input)[Items], T (&output)[Items], Op op, T& aggregate) {
    const Result result = scan(detail::fold_items(input, op), op);
    T sum = emu::thread_rank() == 0 ? input[0] : op(result.exclusive, input[0]);
    for (int i = 0; i < Items; ++i) {
      const T next = i + 1 < Items ? op(sum, input[i + 1 < Items ? i + 1 : i]) : sum;
      output[i] = sum;  // Written last: input and output may be the same array.
      sum = next;
    }
    aggregate = result.aggregate;
  }
  template <int Items, class Op>
  EMU_INLINE void ExclusiveScan(T (&input)[Items], T (&output)[Items], T initial, Op op) {
    T aggregate;
    ExclusiveScan(input, output, initial, op, aggregate);
  }
  template <int Items, class Op>
  EMU_INLINE void ExclusiveScan(T (&input)[Items], T (&output)[Items], T initial, Op op, T& aggregate) {
    const Result result = scan(detail::fold_items(input, op), op);
    T sum = from_initial(result, initial, op);
    for (int i = 0; i < Items; ++i) {
      const T next = op(sum, input[i]);
      output[i] = sum;  // Written last: input and output may be the same array.
      sum = next;
    }
    aggregate = result.aggregate;
  }

 private:
  struct Result {
    T inclusive;
    T exclusive;
    T aggregate;
  };

  template <class Op>
  EMU_INLINE Result scan(T input, Op op) {
    const int rank = static_cast<int>(emu::thread_rank());
    const int warp = rank / detail::kWarp;
    typename WarpScan<T>::TempStorage none;
    Result result{input, input, input};
    WarpScan<T>(none).Scan(input, result.inclusive, result.exclusive, op);
    const bool last_of_warp = rank % detail::kWarp == detail::kWarp - 1 || rank == kThreads - 1;
    if (last_of_warp) storage_.warp_aggregates[warp] = result.inclusive;
    emu::barrier("cub::BlockScan");
    T sum = storage_.warp_aggregates[0];
    for (int other = 1; other < kWarps; ++other) {
      if (other == warp) {
        result.exclusive = rank % detail::kWarp == 0 ? sum : op(sum, result.exclusive);
        result.inclusive = op(sum, result.inclusive);
      }
      sum = op(sum, storage_.warp_aggregates[other]);
    }
    result.aggregate = sum;
    return result;
  }

  template <class Op>
  static T from_initial(const Result& result, T initial, Op op) {
    return emu::thread_rank() == 0 ? initial : op(initial, result.exclusive);
  }

  // All lanes of the first warp call the functor, as in cub; lane 0's result is the prefix.
  template <class Prefix>
  EMU_INLINE T block_prefix(T aggregate, Prefix& prefix) {
    if (emu::warp_index() == 0) {
      const T told = prefix(aggregate);
      if (emu::lane() == 0) storage_.block_prefix = told;
    }
    emu::barrier("cub::BlockScan");
    return storage_.block_prefix;
  }

  TempStorage& storage_;
};

}  // namespace cub

#endif  // WARPGRADE_EMU_CUB_BLOCK_SCAN_CUH
