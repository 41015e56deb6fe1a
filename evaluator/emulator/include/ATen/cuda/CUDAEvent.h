// at::cuda::CUDAEvent is c10's class; PyTorch imports c10::cuda into at::cuda.
#pragma once

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/Exceptions.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
