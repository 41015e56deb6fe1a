// Raw memory of the caching allocator, without caching: every allocation ends at a guard page.
#pragma once

#include <cstddef>

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAStream.h>

namespace c10::cuda::CUDACachingAllocator {

inline void* raw_alloc(std::size_t bytes) {
  void* memory = nullptr;
  C10_CUDA_CHECK(cudaMalloc(&memory, bytes));
  return memory;
}
inline void* raw_alloc_with_stream(std::size_t bytes, cudaStream_t) { return raw_alloc(bytes); }
inline void raw_delete(void* memory) { C10_CUDA_CHECK(cudaFree(memory)); }
inline void emptyCache() {}
// Memory is used in order, so no stream can use memory after its owner.
inline void recordStream(const DataPtr&, CUDAStream) {}
inline c10::Allocator* get() { return c10::GetAllocator(kCPU); }

}  // namespace c10::cuda::CUDACachingAllocator
