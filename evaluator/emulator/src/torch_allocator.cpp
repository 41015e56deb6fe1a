// PyTorch CPU allocator based on the guarded heap. The only runtime file that depends on PyTorch.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>

#include "heap.h"

namespace emu {
namespace {

class GuardedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device device(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &release, device};
    void* data = heap_allocate(bytes, "tensor");
    TORCH_CHECK_WITH(OutOfMemoryError, data != nullptr, "the emulator cannot map ", bytes, " bytes");
    return {data, data, &release, device};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }

 private:
  static void release(void* data) {
    if (data != nullptr) heap_free(data);
  }
};

}  // namespace

void install_torch_allocator() {
  static GuardedAllocator* const allocator = new GuardedAllocator;  // tensors outlive static objects
  c10::SetCPUAllocator(allocator, /*priority=*/1);
}

}  // namespace emu
