// CUDA_KERNEL_LOOP and similar macros: PyTorch's own header, unchanged.
#pragma once

#include <cuda_runtime.h>
#include_next <ATen/cuda/detail/KernelUtils.h>
