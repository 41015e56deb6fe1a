// at::cuda::check_device.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContext.h>

namespace at::cuda {

// There is one device, so all tensors share it.
inline bool check_device(ArrayRef<Tensor>) { return true; }

}  // namespace at::cuda
