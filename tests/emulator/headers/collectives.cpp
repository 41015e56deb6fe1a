// Kernels that use cub and cooperative groups, as the rewriter would have left them.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cub/cub.cuh>
#include <cuda/functional>
#include <cuda_runtime.h>

#include <cstring>
#include <exception>

namespace cg = cooperative_groups;

namespace {

char error_text[512];

// What a launch throws, as text: exceptions cannot pass through ctypes.
template <class Body>
const char* caught(Body body) {
  try {
    body();
    return nullptr;
  } catch (const std::exception& error) {
    std::strncpy(error_text, error.what(), sizeof(error_text) - 1);
    return error_text;
  }
}

// 96 threads in three dimensions. out: sum, maximum of the first 70, sum of pairs, and what thread 5 is told.
void block_reduce_kernel(const float* in, float* out) {
  using Reduce = cub::BlockReduce<float, 8, cub::BLOCK_REDUCE_WARP_REDUCTIONS, 4, 3>;
  auto& storage = emu::shared<Reduce::TempStorage>(0);
  const int rank = threadIdx.x + 8 * (threadIdx.y + 4 * threadIdx.z);
  const float sum = Reduce(storage).Sum(in[rank]);
  if (rank == 0) out[0] = sum;
  if (rank == 5) out[3] = sum;
  __syncthreads();
  const float maximum = Reduce(storage).Reduce(in[rank], cub::Max(), 70);
  if (rank == 0) out[1] = maximum;
  __syncthreads();
  float pair[2] = {in[rank], in[rank]};
  const float pairs = Reduce().Sum(pair);
  if (rank == 0) out[2] = pairs;
}

// Asks a running total for the prefix of each block-wide scan.
struct RunningTotal {
  int total;
  int operator()(int block_sum) {
    const int before = total;
    total += block_sum;
    return before;
  }
};

// 100 threads. Six rows of 100: inclusive, exclusive, exclusive from 1000 by maximum, two rounds of a running total,
// and the aggregate.
void block_scan_kernel(const int* in, int* out) {
  using Scan = cub::BlockScan<int, 100>;
  auto& storage = emu::shared<Scan::TempStorage>(1);
  const int t = threadIdx.x;
  int aggregate;
  Scan(storage).InclusiveSum(in[t], out[t], aggregate);
  out[500 + t] = aggregate;
  __syncthreads();
  Scan(storage).ExclusiveSum(in[t], out[100 + t]);
  __syncthreads();
  Scan(storage).ExclusiveScan(in[t], out[200 + t], 5, cuda::maximum<>());
  RunningTotal total{7};
  for (int round = 0; round < 2; ++round) {
    __syncthreads();
    Scan(storage).ExclusiveSum(in[t], out[300 + 100 * round + t], total);
  }
}

// 32 threads with 3 items each, loaded and stored in both arrangements; 90 of 96 are valid.
void block_items_kernel(const int* in, int* scanned, int* striped) {
  using Load = cub::BlockLoad<int, 32, 3, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
  using Scan = cub::BlockScan<int, 32>;
  using Store = cub::BlockStore<int, 32, 3, cub::BLOCK_STORE_WARP_TRANSPOSE>;
  auto& load = emu::shared<Load::TempStorage>(2);
  auto& scan = emu::shared<Scan::TempStorage>(3);
  auto& store = emu::shared<Store::TempStorage>(4);
  int items[3];
  Load(load).Load(in, items, 90, 1000);
  Scan(scan).InclusiveSum(items, items);
  Store(store).Store(scanned, items, 90);
  int dealt[3];
  cub::BlockLoad<int, 32, 3, cub::BLOCK_LOAD_STRIPED>().Load(in, dealt, 90, -1);
  cub::BlockStore<int, 32, 3>().Store(striped, dealt);
}

// 64 threads. Rows of 64: sums of 8 lanes, of the first 5 of 32, exclusive scans of 16, shuffles.
void warp_kernel(const int* in, int* out) {
  const int t = threadIdx.x;
  cub::WarpReduce<int, 8>::TempStorage reduce8;
  out[t] = cub::WarpReduce<int, 8>(reduce8).Sum(in[t]);
  cub::WarpReduce<int>::TempStorage reduce;
  out[64 + t] = cub::WarpReduce<int>(reduce).Sum(in[t], 5);
  cub::WarpScan<int, 16>::TempStorage scan;
  cub::WarpScan<int, 16>(scan).ExclusiveSum(in[t], out[128 + t]);
  out[192 + t] = cub::ShuffleDown<32>(in[t], 3, 31, 0xffffffffu);
}

// 64 threads. Rows of 64, in the order of the statements.
void groups_kernel(const int* in, int* out) {
  const cg::thread_block block = cg::this_thread_block();
  const int t = block.thread_rank();
  int* row = out + t;
  const auto put = [&](int value) {
    *row = value;
    row += 64;
  };
  const auto warp = cg::tiled_partition<32>(block);
  const auto tile = cg::tiled_partition<8>(warp);
  put(cg::reduce(tile, in[t], cg::plus<int>()));
  put(tile.shfl_xor(in[t], 1));
  put(tile.shfl_down(in[t], 2));
  put(tile.shfl(in[t], 3));
  put(tile.ballot(t % 3 == 0));
  put(tile.any(t == 9) * 10 + tile.all(t < 16));
  put(tile.meta_group_rank() * 100 + tile.meta_group_size() * 10 + tile.thread_rank());
  put(cg::inclusive_scan(tile, in[t]));
  put(cg::exclusive_scan(tile, in[t]));
  put(tile.match_any(in[t] % 2));
  const cg::thread_group any_group = cg::tiled_partition(block, 4);
  any_group.sync();
  put(any_group.size() * 10 + any_group.thread_rank());
  const auto label = cg::labeled_partition(warp, t % 3);
  put(label.size() * 100 + label.thread_rank());
  put(cg::reduce(label, in[t], cg::greater<int>()));
  put(label.meta_group_rank() * 10 + label.meta_group_size());
  int told = -1;
  if (t % 2 == 1) {
    const cg::coalesced_group odd = cg::coalesced_threads();
    told = odd.size() * 1000 + odd.thread_rank() * 10 + (odd.shfl_down(t, 1) == t + 2);
  }
  put(told);
  block.sync();
}

}  // namespace

extern "C" const char* block_reduce(const float* in, float* out) {
  return caught([&] {
    emu::launch<true>("block_reduce_kernel", 0, emu::Config(1, dim3(8, 4, 3)), block_reduce_kernel, in, out);
  });
}
extern "C" const char* block_scan(const int* in, int* out) {
  return caught([&] { emu::launch<true>("block_scan_kernel", 0, emu::Config(1, 100), block_scan_kernel, in, out); });
}
extern "C" const char* block_items(const int* in, int* scanned, int* striped) {
  return caught([&] {
    emu::launch<true>("block_items_kernel", 0, emu::Config(1, 32), block_items_kernel, in, scanned, striped);
  });
}
extern "C" const char* warps(const int* in, int* out) {
  return caught([&] { emu::launch<true>("warp_kernel", 0, emu::Config(1, 64), warp_kernel, in, out); });
}
extern "C" const char* groups(const int* in, int* out) {
  return caught([&] { emu::launch<true>("groups_kernel", 0, emu::Config(1, 64), groups_kernel, in, out); });
}
