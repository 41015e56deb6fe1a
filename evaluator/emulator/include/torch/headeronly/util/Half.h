// PyTorch's c10::Half, with the conversions from and to __half that PyTorch enables for nvcc.
//
// The conversions depend on __CUDACC__. A global definition would activate CUDA code missing from the emulator, so the
// macro is defined only for this file, after its includes.
#pragma once

#include <cuda_fp16.h>
#include <torch/headeronly/macros/Macros.h>
#include <torch/headeronly/util/bit_cast.h>
#include <torch/headeronly/util/floating_point_utils.h>

#pragma push_macro("__CUDACC__")
#pragma push_macro("__device__")
#undef __CUDACC__
#undef __device__
#define __CUDACC__ 1
#define __device__
#include_next <torch/headeronly/util/Half.h>
#pragma pop_macro("__device__")
#pragma pop_macro("__CUDACC__")
