// at::cuda::CUDAEvent is c10's; torch makes c10::cuda visible in at::cuda.
#pragma once

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/Exceptions.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
