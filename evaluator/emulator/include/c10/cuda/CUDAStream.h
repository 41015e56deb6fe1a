// c10::cuda::CUDAStream. All streams execute work immediately and in order, so waiting is unnecessary; streams differ
// only in number. Their device is the CPU, like a submission's tensors.
#pragma once

#include <ostream>

#include <c10/core/Stream.h>
#include <c10/cuda/CUDAFunctions.h>

namespace c10::cuda {

class CUDAStream {
 public:
  enum Unchecked { UNCHECKED };

  explicit CUDAStream(Stream stream) : stream_(stream) {}
  CUDAStream(Unchecked, Stream stream) : stream_(stream) {}

  bool operator==(const CUDAStream& other) const noexcept { return stream_ == other.stream_; }
  bool operator!=(const CUDAStream& other) const noexcept { return stream_ != other.stream_; }

  operator cudaStream_t() const { return stream(); }
  operator Stream() const { return stream_; }

  // The default stream is null, as in CUDA.
  cudaStream_t stream() const { return reinterpret_cast<cudaStream_t>(stream_.id()); }
  StreamId id() const { return stream_.id(); }
  Device device() const { return stream_.device(); }
  DeviceType device_type() const { return stream_.device_type(); }
  DeviceIndex device_index() const { return 0; }
  Stream unwrap() const { return stream_; }
  int priority() const { return 0; }
  bool is_capturing() const { return false; }
  bool query() const { return true; }
  void synchronize() const { stream_synchronize(stream()); }

 private:
  Stream stream_;
};

namespace detail {

inline CUDAStream stream_of_id(StreamId id) { return CUDAStream(Stream(Stream::UNSAFE, Device(kCPU), id)); }

inline CUDAStream& current_stream() {
  static thread_local CUDAStream stream = stream_of_id(0);
  return stream;
}

}  // namespace detail

inline CUDAStream getDefaultCUDAStream(DeviceIndex = -1) { return detail::stream_of_id(0); }
inline CUDAStream getCurrentCUDAStream(DeviceIndex = -1) { return detail::current_stream(); }
inline void setCurrentCUDAStream(CUDAStream stream) { detail::current_stream() = stream; }

// Stream ids are the values of cudaStreamCreate, so functions with cudaStream_t accept them.
inline CUDAStream getStreamFromExternal(cudaStream_t stream, DeviceIndex = -1) {
  return detail::stream_of_id(reinterpret_cast<StreamId>(stream));
}
inline CUDAStream getStreamFromPool(int, DeviceIndex = -1) {
  cudaStream_t stream;
  C10_CUDA_CHECK(cudaStreamCreate(&stream));
  return getStreamFromExternal(stream);
}
inline CUDAStream getStreamFromPool(bool high_priority = false, DeviceIndex = -1) {
  return getStreamFromPool(high_priority ? -1 : 0);
}

inline std::ostream& operator<<(std::ostream& out, const CUDAStream& stream) { return out << stream.unwrap(); }

}  // namespace c10::cuda
