// PyTorch and CUDA declarations for the host half of a split build, compiled once as a precompiled header.
//
// g++ instead of nvcc reads CUDA's headers here, so the templates that cuda_runtime.h reserves for nvcc are repeated
// below.
#pragma once

#include <torch/types.h>

#include <ATen/Dispatch.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "warpgrade_bind.h"

/// Called by `kernel<<<grid, block, shared, stream>>>` before the kernel's host stub; a nonzero result skips the stub.
extern "C" unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared = 0, CUstream_st* stream = nullptr);

// Device symbols. The host half knows their addresses through a reference, see `split_source.py`.

template <typename T>
cudaError_t cudaMemcpyToSymbol(
    const T& symbol, const void* source, size_t bytes, size_t offset = 0, cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  return ::cudaMemcpyToSymbol(static_cast<const void*>(&symbol), source, bytes, offset, kind);
}

template <typename T>
cudaError_t cudaMemcpyToSymbolAsync(
    const T& symbol,
    const void* source,
    size_t bytes,
    size_t offset = 0,
    cudaMemcpyKind kind = cudaMemcpyHostToDevice,
    cudaStream_t stream = nullptr) {
  return ::cudaMemcpyToSymbolAsync(static_cast<const void*>(&symbol), source, bytes, offset, kind, stream);
}

template <typename T>
cudaError_t cudaMemcpyFromSymbol(
    void* target, const T& symbol, size_t bytes, size_t offset = 0, cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
  return ::cudaMemcpyFromSymbol(target, static_cast<const void*>(&symbol), bytes, offset, kind);
}

template <typename T>
cudaError_t cudaGetSymbolAddress(void** address, const T& symbol) {
  return ::cudaGetSymbolAddress(address, static_cast<const void*>(&symbol));
}

template <typename T>
cudaError_t cudaGetSymbolSize(size_t* bytes, const T& symbol) {
  return ::cudaGetSymbolSize(bytes, static_cast<const void*>(&symbol));
}

// Kernels by typed pointer.

template <typename... Arguments>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Arguments...), cudaFuncAttribute attribute, int value) {
  return ::cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

template <typename... Arguments>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Arguments...)) {
  return ::cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}

template <typename... Arguments>
cudaError_t cudaFuncSetCacheConfig(void (*kernel)(Arguments...), cudaFuncCache config) {
  return ::cudaFuncSetCacheConfig(reinterpret_cast<const void*>(kernel), config);
}

template <typename... Arguments>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    int* blocks, void (*kernel)(Arguments...), int threads, size_t dynamic_shared_bytes) {
  return ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      blocks, reinterpret_cast<const void*>(kernel), threads, dynamic_shared_bytes);
}
