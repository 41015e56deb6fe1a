// GetTensorInfo: PyTorch's own header, unchanged.
#pragma once

#include <cuda_runtime.h>
#include_next <ATen/cuda/detail/IndexUtils.cuh>
