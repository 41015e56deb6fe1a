// at::numeric_limits: PyTorch's own header, unchanged.
#pragma once

#include <cuda_runtime.h>
#include_next <ATen/cuda/NumericLimits.cuh>
