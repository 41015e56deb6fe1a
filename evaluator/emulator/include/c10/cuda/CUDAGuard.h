// Guards of the current device and stream. A guard accepts any device: only one device exists, and a submission's
// tensors report the CPU.
#pragma once

#include <optional>

#include <c10/core/Device.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/ArrayRef.h>

namespace c10::cuda {

struct CUDAGuard {
  explicit CUDAGuard(DeviceIndex) {}
  explicit CUDAGuard(Device) {}
  CUDAGuard(const CUDAGuard&) = delete;
  CUDAGuard& operator=(const CUDAGuard&) = delete;

  void set_device(Device) {}
  void reset_device(Device) {}
  void set_index(DeviceIndex) {}
  Device original_device() const { return Device(kCPU); }
  Device current_device() const { return Device(kCPU); }
};

struct OptionalCUDAGuard {
  OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(std::optional<Device> device) : device_(device) {}
  explicit OptionalCUDAGuard(std::optional<DeviceIndex> index) {
    if (index.has_value()) device_ = Device(kCPU);
  }
  OptionalCUDAGuard(const OptionalCUDAGuard&) = delete;
  OptionalCUDAGuard& operator=(const OptionalCUDAGuard&) = delete;

  void set_device(Device device) { device_ = device; }
  void reset_device(Device device) { device_ = device; }
  void set_index(DeviceIndex) { device_ = Device(kCPU); }
  std::optional<Device> original_device() const { return device_; }
  std::optional<Device> current_device() const { return device_; }
  void reset() { device_.reset(); }

 private:
  std::optional<Device> device_;
};

struct CUDAStreamGuard {
  explicit CUDAStreamGuard(Stream stream) : original_(getCurrentCUDAStream()) { reset_stream(stream); }
  ~CUDAStreamGuard() { setCurrentCUDAStream(original_); }
  CUDAStreamGuard(const CUDAStreamGuard&) = delete;
  CUDAStreamGuard& operator=(const CUDAStreamGuard&) = delete;

  void reset_stream(Stream stream) { setCurrentCUDAStream(CUDAStream(stream)); }
  CUDAStream original_stream() const { return original_; }
  CUDAStream current_stream() const { return getCurrentCUDAStream(); }
  Device original_device() const { return original_.device(); }
  Device current_device() const { return current_stream().device(); }

 private:
  CUDAStream original_;
};

struct OptionalCUDAStreamGuard {
  OptionalCUDAStreamGuard() = default;
  explicit OptionalCUDAStreamGuard(Stream stream) { reset_stream(stream); }
  explicit OptionalCUDAStreamGuard(std::optional<Stream> stream) {
    if (stream.has_value()) reset_stream(*stream);
  }
  OptionalCUDAStreamGuard(const OptionalCUDAStreamGuard&) = delete;
  OptionalCUDAStreamGuard& operator=(const OptionalCUDAStreamGuard&) = delete;

  void reset_stream(Stream stream) {
    if (guard_.has_value()) {
      guard_->reset_stream(stream);
    } else {
      guard_.emplace(stream);
    }
  }
  std::optional<CUDAStream> original_stream() const {
    return guard_.has_value() ? std::make_optional(guard_->original_stream()) : std::nullopt;
  }
  std::optional<CUDAStream> current_stream() const {
    return guard_.has_value() ? std::make_optional(guard_->current_stream()) : std::nullopt;
  }
  void reset() { guard_.reset(); }

 private:
  std::optional<CUDAStreamGuard> guard_;
};

// On a single device, the last stream becomes the current stream.
struct CUDAMultiStreamGuard {
  explicit CUDAMultiStreamGuard(ArrayRef<CUDAStream> streams) : original_(getCurrentCUDAStream()) {
    if (!streams.empty()) setCurrentCUDAStream(streams.back());
  }
  ~CUDAMultiStreamGuard() { setCurrentCUDAStream(original_); }
  CUDAMultiStreamGuard(const CUDAMultiStreamGuard&) = delete;
  CUDAMultiStreamGuard& operator=(const CUDAMultiStreamGuard&) = delete;

 private:
  CUDAStream original_;
};

}  // namespace c10::cuda
