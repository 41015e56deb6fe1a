// A tensor's sizes and strides for a kernel. torch's own header, as it is.
#pragma once

#include <cuda_runtime.h>
#include_next <ATen/cuda/detail/TensorInfo.cuh>
