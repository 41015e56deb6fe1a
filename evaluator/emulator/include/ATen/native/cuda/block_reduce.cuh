// Block reductions: PyTorch's own header, unchanged.
#pragma once

#include <cuda_runtime.h>
#include_next <ATen/native/cuda/block_reduce.cuh>
