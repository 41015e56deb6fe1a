// c10::cuda::CUDAEvent (at::cuda::CUDAEvent): all prior work is complete at recording. Events measure no time.
#pragma once

#include <optional>
#include <utility>

#include <c10/cuda/CUDAGuard.h>

namespace c10::cuda {

class CUDAEvent {
 public:
  CUDAEvent() noexcept = default;
  explicit CUDAEvent(unsigned int flags) noexcept : flags_(flags) {}
  ~CUDAEvent() {
    if (event_ != nullptr) C10_CUDA_IGNORE_ERROR(cudaEventDestroy(event_));
  }
  CUDAEvent(const CUDAEvent&) = delete;
  CUDAEvent& operator=(const CUDAEvent&) = delete;
  CUDAEvent(CUDAEvent&& other) noexcept { *this = std::move(other); }
  CUDAEvent& operator=(CUDAEvent&& other) noexcept {
    std::swap(flags_, other.flags_);
    std::swap(event_, other.event_);
    return *this;
  }

  operator cudaEvent_t() const { return event_; }
  cudaEvent_t event() const { return event_; }
  bool isCreated() const { return event_ != nullptr; }
  DeviceIndex device_index() const { return 0; }
  std::optional<Device> device() const { return isCreated() ? std::make_optional(Device(kCPU)) : std::nullopt; }

  bool query() const { return true; }
  void record() { record(getCurrentCUDAStream()); }
  void recordOnce(const CUDAStream& stream) {
    if (!isCreated()) record(stream);
  }
  void record(const CUDAStream& stream) {
    if (!isCreated()) C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, flags_));
    C10_CUDA_CHECK(cudaEventRecord(event_, stream));
  }
  void block(const CUDAStream&) {}
  void synchronize() const {
    if (isCreated()) C10_CUDA_CHECK(cudaEventSynchronize(event_));
  }
  float elapsed_time(const CUDAEvent& other) const {
    TORCH_CHECK(isCreated() && other.isCreated(), "Both events must be recorded before calculating elapsed time.");
    float time_ms = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&time_ms, event_, other.event_));
    return time_ms;
  }

 private:
  unsigned int flags_ = cudaEventDisableTiming;
  cudaEvent_t event_ = nullptr;
};

}  // namespace c10::cuda
