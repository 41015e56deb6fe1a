// Part of cub for use inside kernels: reductions, scans, loads and stores of a block or warp.
//
// Device-wide algorithms, sorting, histograms and exchanges are missing.
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
