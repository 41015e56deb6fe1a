// WARP_SHFL_DOWN and its like. torch's own header, as it is.
#pragma once

#include <cuda_runtime.h>
#include_next <ATen/cuda/DeviceUtils.cuh>
