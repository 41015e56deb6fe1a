// A tensor's sizes and strides for a kernel: torch's own header, which needs nothing but a kernel's built-in variables and functions.
#pragma once

#include <cuda_runtime.h>
#include_next <ATen/cuda/detail/TensorInfo.cuh>
