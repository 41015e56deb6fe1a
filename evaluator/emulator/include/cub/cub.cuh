// The part of cub that kernels call inside: reductions, scans, loads and stores of a block or a warp.
//
// Its device-wide algorithms, sorting, histograms and exchanges are not here.
#ifndef WARPGRADE_EMU_CUB_CUB_CUH
#define WARPGRADE_EMU_CUB_CUB_CUH

#include <cub/block/block_load.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
#include <cub/util/shuffle.h>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>

#endif  // WARPGRADE_EMU_CUB_CUB_CUH
