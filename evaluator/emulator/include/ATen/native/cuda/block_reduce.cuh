// Reductions over a block. torch's own header, as it is.
#pragma once

#include <cuda_runtime.h>
#include_next <ATen/native/cuda/block_reduce.cuh>
