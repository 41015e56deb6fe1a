// CUDA_KERNEL_LOOP and its like. torch's own header, as it is.
#pragma once

#include <cuda_runtime.h>
#include_next <ATen/cuda/detail/KernelUtils.h>
