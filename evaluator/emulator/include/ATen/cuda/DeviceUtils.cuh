// WARP_SHFL_DOWN and its like: torch's own header, which needs nothing but a kernel's built-in variables and functions.
#pragma once

#include <cuda_runtime.h>
#include_next <ATen/cuda/DeviceUtils.cuh>
