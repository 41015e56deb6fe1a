// WARP_SHFL_DOWN and similar macros: PyTorch's own header, unchanged.
#pragma once

#include <cuda_runtime.h>
#include_next <ATen/cuda/DeviceUtils.cuh>
