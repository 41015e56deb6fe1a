// cub::WarpScan.
#ifndef WARPGRADE_EMU_CUB_WARP_SCAN_CUH
#define WARPGRADE_EMU_CUB_WARP_SCAN_CUH

#include "cub/util/common.h"

namespace cub {

template <class T, int LogicalWarpThreads = 32, int LegacyPtxArch = 0>
class WarpScan {
  static_assert(LogicalWarpThreads >= 1 && LogicalWarpThreads <= 32, "a logical warp has 1 to 32 threads");

 public:
  struct TempStorage {};

  explicit WarpScan(TempStorage&) {}

  EMU_INLINE void InclusiveSum(T input, T& output) { InclusiveScan(input, output, cub::Sum()); }
  EMU_INLINE void InclusiveSum(T input, T& output, T& aggregate) {
    InclusiveScan(input, output, cub::Sum(), aggregate);
  }
  EMU_INLINE void ExclusiveSum(T input, T& output) { ExclusiveScan(input, output, T{}, cub::Sum()); }
  EMU_INLINE void ExclusiveSum(T input, T& output, T& aggregate) {
    ExclusiveScan(input, output, T{}, cub::Sum(), aggregate);
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
  // Without an initial value, the first lane's output is undefined.
  template <class Op>
  EMU_INLINE void ExclusiveScan(T input, T& output, Op op) {
    output = scan(input, op).exclusive;
  }
  template <class Op>
  EMU_INLINE void ExclusiveScan(T input, T& output, T initial, Op op) {
    output = from_initial(scan(input, op), initial, op);
  }
  template <class Op>
  EMU_INLINE void ExclusiveScan(T input, T& output, Op op, T& aggregate) {
    const Result result = scan(input, op);
    output = result.exclusive;
    aggregate = result.aggregate;
  }
  // The aggregate excludes the initial value.
  template <class Op>
  EMU_INLINE void ExclusiveScan(T input, T& output, T initial, Op op, T& aggregate) {
    const Result result = scan(input, op);
    output = from_initial(result, initial, op);
    aggregate = result.aggregate;
  }
  template <class Op>
  EMU_INLINE void Scan(T input, T& inclusive, T& exclusive, Op op) {
    const Result result = scan(input, op);
    inclusive = result.inclusive;
    exclusive = result.exclusive;
  }
  template <class Op>
  EMU_INLINE void Scan(T input, T& inclusive, T& exclusive, T initial, Op op) {
    const Result result = scan(input, op);
    inclusive = op(initial, result.inclusive);
    exclusive = from_initial(result, initial, op);
  }

  EMU_INLINE T Broadcast(T input, unsigned source) {
    const unsigned lane = detail::logical_warp_first<LogicalWarpThreads>() + source;
    return emu::exchange("cub::WarpScan::Broadcast", detail::logical_warp_mask<LogicalWarpThreads>(), input,
                         [lane](const emu::Peers<T>& peers) { return peers[lane]; });
  }

 private:
  struct Result {
    T inclusive;
    T exclusive;
    T aggregate;
  };

  template <class Op>
  EMU_INLINE static Result scan(T input, Op op) {
    const unsigned first = detail::logical_warp_first<LogicalWarpThreads>();
    return emu::exchange("cub::WarpScan", detail::logical_warp_mask<LogicalWarpThreads>(), input,
                         [=](const emu::Peers<T>& peers) -> Result {
                           T sum = peers[first];
                           Result result{sum, detail::undefined(sum), sum};
                           for (unsigned lane = first + 1; lane < first + LogicalWarpThreads; ++lane) {
                             if (!peers.has(lane)) break;
                             if (lane == peers.lane()) result.exclusive = sum;
                             sum = op(sum, peers[lane]);
                             if (lane == peers.lane()) result.inclusive = sum;
                           }
                           result.aggregate = sum;
                           return result;
                         });
  }

  template <class Op>
  static T from_initial(const Result& result, T initial, Op op) {
    const bool is_first = emu::lane() == detail::logical_warp_first<LogicalWarpThreads>();
    return is_first ? initial : op(initial, result.exclusive);
  }
};

}  // namespace cub

#endif  // WARPGRADE_EMU_CUB_WARP_SCAN_CUH
