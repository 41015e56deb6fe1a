// CUDA runtime API functions with an implementation beyond a return value.
#include "cuda_runtime_api.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "emu/launch.h"
#include "heap.h"
#include "launcher.h"
#include "limits.h"

namespace {

// Each host thread has a separate last error, as in CUDA.
__thread cudaError_t last_error = cudaSuccess;

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidSymbol, "cudaErrorInvalidSymbol", "invalid device symbol"},
    {cudaErrorInvalidDevicePointer, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
};

const ErrorText* find(cudaError_t error) {
  for (const ErrorText& entry : kErrors) {
    if (entry.error == error) return &entry;
  }
  return nullptr;
}

// Returns whether `bytes` from a pointer exceed an emulator allocation. Foreign memory is not checked.
bool overruns(const void* pointer, std::size_t bytes) {
  const std::size_t left = emu::heap_bytes_from(pointer);
  return left != 0 && bytes > left;
}

}  // namespace

namespace emu {

cudaError_t record_error(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t device_malloc(void** pointer, std::size_t bytes, const char* kind) {
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  *pointer = heap_allocate(bytes, kind);
  return record_error(*pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t set_function_attribute(cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || static_cast<std::size_t>(value) > limits::kOptInSharedBytes)
    return record_error(cudaErrorInvalidValue);
  allow_dynamic_shared(static_cast<std::size_t>(value));
  return cudaSuccess;
}

cudaError_t function_attributes(cudaFuncAttributes* attributes) {
  *attributes = {};
  attributes->maxThreadsPerBlock = limits::kThreadsPerBlock;
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = 90;
  attributes->maxDynamicSharedSizeBytes = limits::kStaticSharedBytes;
  return cudaSuccess;
}

cudaError_t occupancy(int* blocks, int threads_per_block, std::size_t dynamic_bytes) {
  if (threads_per_block <= 0) return record_error(cudaErrorInvalidValue);
  *blocks = 0;
  if (threads_per_block > static_cast<int>(limits::kThreadsPerBlock)) return cudaSuccess;
  // Threads are rounded up to whole warps. Each block also uses 1 KiB of system shared memory.
  const int threads = (threads_per_block + 31) / 32 * 32;
  const auto by_shared = static_cast<int>(limits::kSharedBytesPerMultiprocessor / (dynamic_bytes + 1024));
  *blocks = std::min({limits::kBlocksPerMultiprocessor, limits::kThreadsPerMultiprocessor / threads, by_shared});
  return cudaSuccess;
}

cudaStream_t new_stream() {
  // Small numbers, never dereferenced. 1 and 2 are CUDA's special streams.
  static std::atomic<std::uintptr_t> next{16};
  return reinterpret_cast<cudaStream_t>(next.fetch_add(16));
}

cudaEvent_t new_event() { return reinterpret_cast<cudaEvent_t>(new_stream()); }

}  // namespace emu

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() { return last_error; }

const char* cudaGetErrorName(cudaError_t error) {
  const ErrorText* entry = find(error);
  return entry == nullptr ? "cudaErrorUnknown" : entry->name;
}

const char* cudaGetErrorString(cudaError_t error) {
  const ErrorText* entry = find(error);
  return entry == nullptr ? "unknown error" : entry->text;
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr || emu::heap_free(pointer)) return cudaSuccess;
  return emu::record_error(cudaErrorInvalidValue);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  if (bytes == 0) return cudaSuccess;
  if (to == nullptr || from == nullptr || overruns(to, bytes) || overruns(from, bytes)) {
    return emu::record_error(cudaErrorInvalidValue);
  }
  std::memmove(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                         std::size_t height, cudaMemcpyKind kind) {
  if (width > to_pitch || width > from_pitch) return emu::record_error(cudaErrorInvalidPitchValue);
  for (std::size_t row = 0; row < height; ++row) {
    const cudaError_t error = cudaMemcpy(static_cast<char*>(to) + row * to_pitch,
                                         static_cast<const char*>(from) + row * from_pitch, width, kind);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t cudaMemset(void* pointer, int value, std::size_t bytes) {
  if (bytes == 0) return cudaSuccess;
  if (pointer == nullptr || overruns(pointer, bytes)) return emu::record_error(cudaErrorInvalidValue);
  std::memset(pointer, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemset2D(void* pointer, std::size_t pitch, int value, std::size_t width, std::size_t height) {
  if (width > pitch) return emu::record_error(cudaErrorInvalidPitchValue);
  for (std::size_t row = 0; row < height; ++row) {
    const cudaError_t error = cudaMemset(static_cast<char*>(pointer) + row * pitch, value, width);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = std::size_t{140} << 30;
  *total = std::size_t{141} << 30;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const bool is_ours = emu::heap_bytes_from(pointer) != 0;
  void* plain = const_cast<void*>(pointer);
  *attributes = {is_ours ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered, 0, plain, plain};
  return cudaSuccess;
}

// The single GPU has number 0; CPU tensors report device -1.
static bool is_the_device(int device) { return device == 0 || device == -1; }

cudaError_t cudaSetDevice(int device) {
  return emu::record_error(is_the_device(device) ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!is_the_device(device)) return emu::record_error(cudaErrorInvalidDevice);
  using namespace emu::limits;
  *properties = {};
  std::strncpy(properties->name, "Warpgrade emulator", sizeof properties->name - 1);
  properties->totalGlobalMem = std::size_t{141} << 30;
  properties->sharedMemPerBlock = kStaticSharedBytes;
  properties->sharedMemPerBlockOptin = kOptInSharedBytes;
  properties->sharedMemPerMultiprocessor = kSharedBytesPerMultiprocessor;
  properties->reservedSharedMemPerBlock = 1024;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->warpSize = 32;
  properties->memPitch = 2147483647;
  properties->maxThreadsPerBlock = kThreadsPerBlock;
  properties->maxThreadsPerMultiProcessor = kThreadsPerMultiprocessor;
  properties->maxBlocksPerMultiProcessor = kBlocksPerMultiprocessor;
  properties->multiProcessorCount = kMultiprocessors;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = kThreadsPerBlock;
  properties->maxThreadsDim[2] = kBlockZ;
  properties->maxGridSize[0] = kGridX;
  properties->maxGridSize[1] = properties->maxGridSize[2] = kGridYZ;
  properties->clockRate = 1980000;
  properties->memoryClockRate = 3201000;
  properties->memoryBusWidth = 6144;
  properties->l2CacheSize = 50 << 20;
  properties->totalConstMem = 65536;
  properties->major = 9;
  properties->concurrentKernels = properties->unifiedAddressing = properties->managedMemory = 1;
  properties->asyncEngineCount = 3;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, device); error != cudaSuccess) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = properties.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
    case cudaDevAttrMaxBlockDimZ:
      *value = properties.maxThreadsDim[attribute - cudaDevAttrMaxBlockDimX];
      break;
    case cudaDevAttrMaxGridDimX:
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      *value = properties.maxGridSize[attribute - cudaDevAttrMaxGridDimX];
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(properties.sharedMemPerBlock);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(properties.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(properties.sharedMemPerMultiprocessor);
      break;
    case cudaDevAttrTotalConstantMemory:
      *value = static_cast<int>(properties.totalConstMem);
      break;
    case cudaDevAttrWarpSize:
      *value = properties.warpSize;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      *value = properties.regsPerBlock;
      break;
    case cudaDevAttrClockRate:
      *value = properties.clockRate;
      break;
    case cudaDevAttrMemoryClockRate:
      *value = properties.memoryClockRate;
      break;
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = properties.memoryBusWidth;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      break;
    case cudaDevAttrL2CacheSize:
      *value = properties.l2CacheSize;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = properties.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *value = properties.maxBlocksPerMultiProcessor;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      break;
    case cudaDevAttrManagedMemory:
    case cudaDevAttrMemoryPoolsSupported:
      *value = 1;
      break;
    case cudaDevAttrCooperativeLaunch:
      *value = 0;  // sequential blocks cannot wait for each other
      break;
    default:
      return emu::record_error(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
