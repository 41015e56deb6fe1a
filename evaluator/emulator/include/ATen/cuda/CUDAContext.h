// Contents of PyTorch's header of the same name: device properties, streams, checks, at::device_of.
#pragma once

#include <ATen/DeviceGuard.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/Exceptions.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Logging.h>
