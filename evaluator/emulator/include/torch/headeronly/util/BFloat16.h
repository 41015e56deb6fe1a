// PyTorch's c10::BFloat16, with conversions from and to __nv_bfloat16. See Half.h in the same folder.
#pragma once

#include <cuda_bf16.h>
#include <torch/headeronly/macros/Macros.h>
#include <torch/headeronly/util/bit_cast.h>

#pragma push_macro("__CUDACC__")
#pragma push_macro("__device__")
#undef __CUDACC__
#undef __device__
#define __CUDACC__ 1
#define __device__
#include_next <torch/headeronly/util/BFloat16.h>
#pragma pop_macro("__device__")
#pragma pop_macro("__CUDACC__")
